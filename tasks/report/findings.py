"""The answer in a few sentences, written from the rows of the report's own queries, intervals and doubts included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tasks.domain.statistics.means import MARGIN
from tasks.report.form import SCREENING, START, TRAINED, learnt_form, of_a_mute, unlike, withheld
from tasks.report.svg import number, percent
from tasks.report.tables import minus

Ask = Callable[[str], pa.Table]
Row = dict[str, Any]
#: Fewer held-out problems than this are called few: an interval of a rate is then wider than ±10 points.
FEW = 100
#: An encoder that saw less of the traces than this measured their openings.
COVERED = 0.8
#: How often a training is thought to go wrong, where the reader is told that its seeds may not have shown it.
COLLAPSE = 0.1


def answer(ask: Ask) -> list[str]:
    """Did one arm gain more, does its search give more to learn from, was it learnt, and was it wider.

    What is a difference of form is not told as one of ability (tasks.report.form).
    """
    summary, form = ask("report_summary").to_pylist(), ask("report_form").to_pylist()
    return [
        *_difference_of_gains(ask("report_difference_of_gains").to_pylist(), form),
        _bands(summary, ask("report_band_tests").to_pylist(), form),
        _training(summary, ask("report_gains").to_pylist(), form),
        _width(summary, ask("report_diversity").to_pylist(), ask("report_gaps").to_pylist(), form),
    ]


def _difference_of_gains(rows: Sequence[Row], form: Sequence[Row]) -> list[str]:
    """A sentence for every two arms: the study's own question comes first. None where nothing was trained."""
    said, trained = list[str](), any(one["sampled"] == TRAINED for one in form)
    for row in rows:
        if row["source"] != "all" or (row["more_gain"] is None and not trained):
            continue
        arms = (row["arm"], row["other"])
        if why := withheld(form, arms, TRAINED):
            said.append(f"Whether {row['arm']} gained more than {row['other']} is not told: {why}.")
            continue
        more, low, high, p = (row[name] for name in ("more_gain", "more_gain_low", "more_gain_high", "p_adjusted"))
        if low is None or high is None:
            seen = "" if more is None else f" ({signed(100 * more)} pp, {row['n']} problems)"
            said.append(f"Whether {row['arm']} gained more than {row['other']} is not told{seen}: {row['reason']}.")
            continue
        gained = f"{signed(100 * more)} pp more" if more >= 0 else f"{-100 * more:.1f} pp less"
        text = (
            f"{row['arm']} gained {gained} than {row['other']}"
            f"{_interval(low, high, 100)}{f', p = {p:.2g}' if p is not None else ''}, {row['n']} problems"
        )
        if low <= 0 <= high or _corrected_away(row):
            counted = "" if low <= 0 <= high else " once every pair of arms is counted"
            least = row["detectable_gain"]
            found = "" if least is None else f" (this study would find {100 * least:.1f} pp)"
            text += f"; no evidence that one gains more{counted}{found}, {_equivalence(row, 'that both gain the same')}"
        elif _equal(row):
            text += f"; {_equivalence(row, 'that both gain the same')} all the same"
        if moved := [words for arm in arms if (words := learnt_form(form, arm))]:
            text += f"; a gain is also one of form: {listed(moved)}"
        said.append(f"{text}; this holds for {row['holds_for']}." if row["holds_for"] else f"{text}.")
    return said


def _bands(summary: Sequence[Row], tests: Sequence[Row], form: Sequence[Row]) -> str:
    arms = {row["arm"]: row for row in summary if row["problems"]}
    if not arms:
        return "No problem was screened, so nothing is known of the variance bands."
    counted = [
        f"{row['variance']} under {arm} ({percent(row['variance'] / row['problems'])})" for arm, row in arms.items()
    ]
    total = max(row["problems"] for row in arms.values())
    said = f"Of {total} screened problems, {listed(counted)} had both correct and wrong rollouts, and so a gradient"
    if why := withheld(form, list(arms), SCREENING):
        return f"{said}. Whether one gives more to learn from is not told: {why}."
    found = {row["metric"]: row for row in tests if len({(t["arm"], t["other"]) for t in tests}) <= 2}
    ratio, mcnemar = found.get("ratio"), found.get("mcnemar")
    if ratio and ratio["estimate"] is not None:
        said += f"; that is {ratio['estimate']:.2f} times as many for {ratio['arm']} as for {ratio['other']}"
        if ratio["low"] is not None:
            said += f" [{ratio['low']:.2f}, {ratio['high']:.2f}]"
    if mcnemar and mcnemar["p_value"] is not None:
        p = mcnemar["p_adjusted"]
        verdict = "more than chance explains" if p < 0.05 else "a difference that chance may make"
        said += f", {verdict} (exact McNemar, corrected p = {p:.2g})"
    return said + unlike(form, list(arms), SCREENING) + "."


def _equivalence(row: Row, what: str) -> str:
    """What a test of equivalence adds where no difference was found: its absence is shown, or it is not either."""
    p = row["p_equivalent_corrected"]
    if p is None:
        return f"and {what} is not tested"
    joined, shown = ("but", "shown") if _equal(row) else ("and", "not shown")
    return f"{joined} {what} to within {100 * MARGIN:g} pp is {shown} (equivalence, p = {p:.2g})"


def _equal(row: Row) -> bool:
    return row["p_equivalent_corrected"] is not None and row["p_equivalent_corrected"] < 0.05


def _training(summary: Sequence[Row], gains: Sequence[Row], form: Sequence[Row]) -> str:
    climbs = []
    for row in summary:
        if row["gain"] is None:
            continue
        seed = f" (seed {row['seed']})" if len([r for r in summary if r["arm"] == row["arm"]]) > 1 else ""
        climbs.append(
            f"{row['arm']}{seed} from {percent(row['heldout_before'])} to {percent(row['heldout_after'])}"
            f" ({signed(100 * row['gain'])} pp{_interval(row['gain_low'], row['gain_high'], 100)})"
        )
    if not climbs:
        return "Nothing was trained in this run."
    trained = dict.fromkeys((row["arm"], row["seed"]) for row in summary if row["gain"] is not None)
    mute = [why for arm in dict.fromkeys(arm for arm, _ in trained) if (why := of_a_mute(form, arm))]
    moved = [words for arm, seed in trained if (words := learnt_form(form, arm, seed))]
    said = f"Training moved held-out accuracy of {listed(climbs)}"
    for row in gains:
        held = row["gain_low"] is not None and row["gain_low"] <= 0 <= row["gain_high"]
        if row["source"] == "all" and row["gain_low"] is not None and (held or _corrected_away(row)):
            counted = "" if held else " once all gains are counted"
            said += (
                f"; no evidence of a change under {row['arm']}{counted}, {_equivalence(row, 'that it is unchanged')}"
            )
    if mute:
        said += f"; {listed(mute)}: its gain is told with how often it answers, not with what it solves"
    return f"{said}; part of that is form: {listed(list(dict.fromkeys(moved)))}." if moved else f"{said}."


def _corrected_away(row: Row) -> bool:  # by chance, once all of its family are counted
    return row["p_adjusted"] is not None and row["p_adjusted"] >= 0.05


def _width(summary: Sequence[Row], compared: Sequence[Row], gaps: Sequence[Row], form: Sequence[Row]) -> str:
    pairs = [
        r for r in compared if r["metric"] == "diversity" and r["arm"] != r["other"] and r["difference"] is not None
    ]
    pairs = [r for r in pairs if r["basis"] == "equal_n"] or pairs
    if len({r["arm"] for r in summary}) == 1:
        return _width_of_one(compared)
    if not pairs:
        return "Two arms' diversity could not be compared in this run."
    row = min(pairs, key=lambda r: (r["step"], r["other_step"]))
    arms, sampled = (row["arm"], row["other"]), TRAINED if row["step"] else START
    if why := withheld(form, arms, sampled):
        return f"Whether one arm's search is wider is not told: {why}."
    said = "At the start of training, traces" if any(r["gain"] is not None for r in summary) else "Traces"
    said += (
        f" of {row['arm']} lay {number(row['mean'])} apart and those of {row['other']}"
        f" {number(row['other_mean'])} (difference {signed(row['difference'], 3)}"
        f"{_interval(row['difference_low'], row['difference_high'], 1)}, {row['n']} problems)"
    )
    return said + _closing(gaps) + unlike(form, arms, sampled) + "."


def _width_of_one(compared: Sequence[Row]) -> str:
    """Of a study of one arm: whether its own traces lie as far apart after training as before."""
    own = [r for r in compared if r["metric"] == "diversity" and r["arm"] == r["other"] and r["difference"] is not None]
    own = [r for r in own if r["basis"] == "equal_n"] or own
    alone = "With one arm there is no other to have gained more or searched more widely"
    if not own:
        return f"{alone}."
    row = min(own, key=lambda r: (min(r["step"], r["other_step"]), -max(r["step"], r["other_step"])))
    later, earlier = ("mean", "other_mean") if row["step"] > row["other_step"] else ("other_mean", "mean")
    sign = 1 if later == "mean" else -1
    low, high = row["difference_low"], row["difference_high"]
    ends = (low, high) if sign > 0 or low is None or high is None else (-high, -low)
    return (
        f"{alone}; its traces went from {number(row[earlier])} to {number(row[later])} apart under training"
        f" ({signed(sign * row['difference'], 3)}{_interval(*ends, 1)}, {row['n']} problems)."
    )


def _closing(gaps: Sequence[Row]) -> str:
    """What of the closing of two arms' pass@k a constant shift of logits leaves unexplained: only that is width."""
    apart = [r for r in gaps if r["arm"] != r["other"] and r["estimate"] is not None]
    earliest = sorted(apart, key=lambda r: (r["step"], r["other_step"]), reverse=True)
    found = {r["metric"]: r for r in earliest if r["metric"] in ("closure", "closure_of_shift", "closure_beyond_shift")}
    if len(found) < 3:
        return ""
    seen, shift, beyond = (found[m] for m in ("closure", "closure_of_shift", "closure_beyond_shift"))
    low, high = beyond["estimate_low"], beyond["estimate_high"]
    moved = "closed" if seen["estimate"] >= 0 else "widened"
    said = (
        f"; the gap of their pass@k {moved} by {100 * abs(seen['estimate']):.1f} pp up to k = {seen['k']}, where a"
        f" policy better by a constant and no narrower would close {signed(100 * shift['estimate'])} pp"
        f" (beyond that {signed(100 * beyond['estimate'])} pp{_interval(low, high, 100)})"
    )
    explained = low is None or high is None or low <= 0 <= high
    return said + (": no evidence of width" if explained else "")


def caveats(ask: Ask) -> list[str]:
    """What the reader must know before believing these sentences."""
    rows = ask("report_summary").to_pylist()
    heldout = {r["n"] for r in ask("report_passk").to_pylist() if r["n"]}
    warned = []
    if heldout and max(heldout) < FEW:
        warned.append(f"Only {max(heldout)} held-out problems: read the intervals, not the estimates.")
    seeds = len({row["seed"] for row in rows} - {None})
    if seeds == 1:
        warned.append("One training seed: how much another seed would differ is unknown.")
    if seeds > 1 and (unseen := (1 - COLLAPSE) ** seeds) >= 0.05:
        warned.append(
            f"{seeds} training seeds: intervals over seeds are for trainings that differ as these do. Of a recipe that"
            f" collapses once in {1 / COLLAPSE:.0f} trainings, {percent(unseen)} of such studies would see none."
        )
    covered = [r["coverage"] for r in ask("report_diversity_policies").to_pylist() if r["coverage"] is not None]
    if covered and min(covered) < COVERED:
        warned.append(
            f"The encoder read only {percent(min(covered))} of one policy's traces: its diversity is of openings."
        )
    findings = ask("report_audit")["code"].to_pylist()
    if "different_models" in findings:
        warned.append("Arms stand on different base models: what they differ by is not of their scaffolds alone.")
    if findings:
        number = len(findings)
        warned.append(f"The audit has {number} finding{'s' if number > 1 else ''} about the design: see Audit below.")
    return warned


def _interval(low: float | None, high: float | None, scale: float) -> str:
    if low is None or high is None:
        return ", interval not computed"
    digits = 1 if scale > 1 else 3
    spelt = f"[{signed(scale * low, digits)}, {signed(scale * high, digits)}]"
    return f", 95 % interval {spelt}" + (", which contains zero" if low <= 0 <= high else "")


def signed(value: float, digits: int = 1) -> str:
    """
    >>> signed(-3.75), signed(0.0421, 3)
    ('−3.8', '+0.042')
    """
    return minus(f"{value:+.{digits}f}")


def listed(parts: Sequence[str]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f" and {parts[-1]}" if parts else "nothing"
