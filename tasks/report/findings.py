"""The answer in a few sentences, written from the rows of the report's own queries, intervals and doubts included."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tasks.domain.statistics.means import MARGIN
from tasks.report.form import SCREENING, TRAINED, learnt_form, of_a_mute, unlike, withheld
from tasks.report.svg import percent
from tasks.report.told_width import told_width
from tasks.report.wording import corrected_away, interval, listed, signed

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
        *told_width(summary, ask("report_diversity").to_pylist(), ask("report_gaps").to_pylist(), form),
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
        points = round(100 * more, 1) + 0.0
        gained = f"{signed(points)} pp more" if points >= 0 else f"{-points:.1f} pp less"
        text = (
            f"{row['arm']} gained {gained} than {row['other']}"
            f"{interval(low, high, 100)}{f', p = {p:.2g}' if p is not None else ''}, {row['n']} problems"
        )
        if low <= 0 <= high or corrected_away(row):
            counted = "" if low <= 0 <= high else " once every pair of arms is counted"
            least = row["detectable_gain"]
            guess = "by a spread that two seeds hardly tell " if row.get("seeds") == 2 and least else ""
            size = "none, however large" if least is None else f"{100 * least:.1f} pp"
            found = f" ({guess}this study would find {size})"
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
    pairs: dict[frozenset[str], dict[str, Row]] = {}
    for row in tests:
        pairs.setdefault(frozenset((row["arm"], row["other"])), {})[row["metric"]] = row
    why = {pair: withheld(form, list(pair), SCREENING) for pair in pairs or [frozenset(arms)]}
    told = "".join(_of_bands(found) for pair, found in pairs.items() if not why[pair])
    mute = list(dict.fromkeys(one for one in why.values() if one))
    if mute and not told:
        return f"{said}. Whether one gives more to learn from is not told: {mute[0]}."
    said += told.replace("; ", "; that is ", 1) + unlike(form, list(arms), SCREENING)
    return f"{said}. Of pairs with another arm it is not told: {'; '.join(mute)}." if mute else f"{said}."


def _of_bands(found: Mapping[str, Row]) -> str:
    """found: what the cross-tab says of two arms, by metric."""
    said, ratio, mcnemar = "", found.get("ratio"), found.get("mcnemar")
    if ratio and ratio["estimate"] is not None:
        said += f"; {ratio['estimate']:.2f} times as many for {ratio['arm']} as for {ratio['other']}"
        if ratio["low"] is not None:
            said += f" [{ratio['low']:.2f}, {ratio['high']:.2f}]"
    if mcnemar and mcnemar["p_value"] is not None:
        p = mcnemar["p_adjusted"]
        verdict = "more than chance explains" if p < 0.05 else "a difference that chance may make"
        said += f", {verdict} (exact McNemar, corrected p = {p:.2g})"
    return said


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
            f" ({signed(100 * row['gain'])} pp{interval(row['gain_low'], row['gain_high'], 100)})"
        )
    if not climbs:
        return "Nothing was trained in this run."
    trained = dict.fromkeys((row["arm"], row["seed"]) for row in summary if row["gain"] is not None)
    mute = [why for arm in dict.fromkeys(arm for arm, _ in trained) if (why := of_a_mute(form, arm))]
    moved = [words for arm, seed in trained if (words := learnt_form(form, arm, seed))]
    said = f"Training moved held-out accuracy of {listed(climbs)}"
    for row in gains:
        held = row["gain_low"] is not None and row["gain_low"] <= 0 <= row["gain_high"]
        if row["source"] == "all" and row["gain_low"] is not None and (held or corrected_away(row)):
            counted = "" if held else " once all gains are counted"
            if held and any(one["arm"] == row["arm"] and _apart(one) for one in summary):
                ends = interval(row["gain_low"], row["gain_high"], 100)
                counted = f" on the curve's rollouts ({signed(100 * row['gain'])} pp{ends})"
            said += (
                f"; no evidence of a change under {row['arm']}{counted}, {_equivalence(row, 'that it is unchanged')}"
            )
    if mute:
        said += f"; {listed(mute)}: its gain is told with how often it answers, not with what it solves"
    return f"{said}; part of that is form: {listed(list(dict.fromkeys(moved)))}." if moved else f"{said}."


def _apart(row: Row) -> bool:
    """Whether a seed's own interval leaves zero out."""
    return row["gain_low"] is not None and not row["gain_low"] <= 0 <= row["gain_high"]


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
        warned.append(f"The audit has {number} finding{'s' if number > 1 else ''} about the design: see Audit.")
    return warned
