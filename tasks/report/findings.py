"""The answer in a few sentences, written from the rows of the report's own queries, intervals and doubts included."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tasks.domain.gate import SHARES, Gate, Reason, ScreenedArm, reasons
from tasks.domain.statistics.means import MARGIN
from tasks.report.tables import minus, number, percent

# How the report's sentences spell numbers, intervals and lists, and when a difference is one of chance.


def corrected_away(row: Mapping[str, Any]) -> bool:
    """By chance, once all of its family are counted."""
    return row.get("p_adjusted") is not None and row["p_adjusted"] >= 0.05


def interval(low: float | None, high: float | None, scale: float) -> str:
    """Words behind an estimate. scale: 100 for points."""
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


# Is a contrast one of form? What the rows of `report_form` allow the report's sentences to say.

Row = dict[str, Any]
#: Shares that differ by so much can make a difference that is not one of ability.
UNLIKE = 0.1
SCREENING, START, TRAINED = "screening", "held-out, start", "held-out, trained"
_SHARES = (("no_answer", "gave no answer"), ("invalid_tags", "had no valid tags"), ("truncated", "were cut off"))


def withheld(form: Sequence[Row], arms: Sequence[str], sampled: str) -> str | None:
    """Why nothing is said of these arms' difference: they do not write what their scaffolds ask for, at screening or
    where they are compared, or one was taught and another not. None if they do."""
    found = {
        reason.words: reason.of_form
        for stand in dict.fromkeys((SCREENING, sampled))
        for reason in reasons([_delivered(form, arm, stand) for arm in arms if _at(form, arm, stand)], Gate())
    }
    if not found:
        return None
    what = "form and not what is solved" if any(found.values()) else "not their scaffolds alone"
    return f"{'; '.join(found)}, so what differs is {what}"


def of_a_mute(form: Sequence[Row], arm: str) -> str:
    """What an arm did not write before training or after; empty if it wrote what its scaffold asks for."""
    found = [reason.words for stand in (START, TRAINED) for reason in _of_one(form, arm, stand)]
    return listed(list(dict.fromkeys(found))) if found else ""


def _of_one(form: Sequence[Row], arm: str, sampled: str) -> list[Reason]:
    return list(reasons([_delivered(form, arm, sampled)], Gate())) if _at(form, arm, sampled) else []


def _at(form: Sequence[Row], arm: str, sampled: str) -> list[Row]:
    return [row for row in form if (row["arm"], row["sampled"]) == (arm, sampled)]


def _delivered(form: Sequence[Row], arm: str, sampled: str) -> ScreenedArm:
    """An arm's shares, means over its seeds."""
    rows = _at(form, arm, sampled)
    shares = {name: sum(row[name] for row in rows) / len(rows) for name in (*SHARES, "accuracy")}
    return ScreenedArm(arm=arm, shares=shares, live=None, taught=any(row["taught"] for row in rows))


def unlike(form: Sequence[Row], arms: Sequence[str], sampled: str) -> str:
    """The shares in which arms' rollouts differ in form; empty if they are alike."""
    rows = {r["arm"]: r for r in form if r["sampled"] == sampled and r["arm"] in arms}
    said = []
    for name, what in _SHARES:
        shares = [row[name] for row in rows.values()]
        if shares and max(shares) - min(shares) >= UNLIKE:
            first, *others = (f"{percent(row[name])} of {arm}'s" for arm, row in rows.items())
            *most, last = (f"{first} rollouts {what}", *others)
            said.append(f"{', '.join(most)} and {last}")
    return f"; this is also a difference of form: {', '.join(said)}" if said else ""


def learnt_form(form: Sequence[Row], arm: str, seed: int | None = None) -> str:
    """How the share without an answer moved under training, where it moved by enough to make a gain; empty if not."""
    before = [r["no_answer"] for r in form if (r["arm"], r["sampled"]) == (arm, START)]
    after = [r["no_answer"] for r in form if (r["arm"], r["sampled"]) == (arm, TRAINED) and seed in (None, r["seed"])]
    if not before or not after:
        return ""
    last = sum(after) / len(after)
    if abs(before[0] - last) < UNLIKE:
        return ""
    return f"rollouts of {arm} without an answer went from {percent(before[0])} to {percent(last)}"


# Whether one arm's traces lie further apart than another's, and whether more than a shift closes their pass@k.


def width_summary(
    summary: Sequence[Row], compared: Sequence[Row], gaps: Sequence[Row], form: Sequence[Row]
) -> list[str]:
    """A sentence for every two arms, at the earliest steps at which they were compared."""
    rows = [r for r in compared if r["metric"] == "diversity" and r["difference"] is not None]
    if len({r["arm"] for r in summary}) == 1:
        return [_of_one_arm(rows)]
    pairs: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["arm"] != row["other"]:
            pairs.setdefault((row["arm"], row["other"]), []).append(row)
    if not pairs:
        return ["This run does not compare two arms' diversity."]
    trained = any(r["gain"] is not None for r in summary)
    earliest = [
        min(found, key=lambda r: (r["basis"] != "equal_n", r["step"], r["other_step"])) for found in pairs.values()
    ]
    said = [_of_two(row, gaps, form, trained) for row in sorted(earliest, key=lambda r: (r["step"], r["other_step"]))]
    return list(dict.fromkeys(said))


def _of_two(row: Row, gaps: Sequence[Row], form: Sequence[Row], trained: bool) -> str:
    arms, sampled = (row["arm"], row["other"]), TRAINED if row["step"] else START
    if why := withheld(form, arms, sampled):
        return f"Whether one arm's search is wider is not told: {why}."
    low, high = row["difference_low"], row["difference_high"]
    chance = low is not None and high is not None and not low <= 0 <= high and corrected_away(row)
    return (
        f"{'At the start of training, traces' if trained and not row['step'] else 'Traces'}"
        f" of {row['arm']} lay {number(row['mean'])} apart and those of {row['other']}"
        f" {number(row['other_mean'])} (difference {signed(row['difference'], 3)}"
        f"{interval(low, high, 1)}{', no evidence of a difference once all are counted' if chance else ''},"
        f" {row['n']} problems)" + _closing(row, gaps) + unlike(form, arms, sampled) + "."
    )


def _of_one_arm(rows: Sequence[Row]) -> str:
    """Of a study of one arm: whether its own traces lie as far apart after training as before."""
    own = [r for r in rows if r["arm"] == r["other"]]
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
        f" ({signed(sign * row['difference'], 3)}{interval(*ends, 1)}, {row['n']} problems)."
    )


def _closing(row: Row, gaps: Sequence[Row]) -> str:
    """What of the closing of these two policies' pass@k a constant shift of logits leaves unexplained: only that is
    width. row: of their diversity."""
    ends = {(row["arm"], row["step"]), (row["other"], row["other_step"])}
    theirs = [g for g in gaps if {(g["arm"], g["step"]), (g["other"], g["other_step"])} == ends]
    found = {g["metric"]: g for g in theirs if g["estimate"] is not None}
    if not {"closure", "closure_of_shift", "closure_beyond_shift"} <= found.keys():
        return ""
    seen, shift, beyond = (found[m] for m in ("closure", "closure_of_shift", "closure_beyond_shift"))
    low, high = beyond["estimate_low"], beyond["estimate_high"]
    moved = "closed" if seen["estimate"] >= 0 else "widened"
    said = (
        f"; the gap of their pass@k {moved} by {100 * abs(seen['estimate']):.1f} pp up to k = {seen['k']}, where a"
        f" policy better by a constant and no narrower would close {signed(100 * shift['estimate'])} pp"
        f" (beyond that {signed(100 * beyond['estimate'])} pp{interval(low, high, 100)})"
    )
    if low is None or high is None or low <= 0 <= high:
        return f"{said}: no evidence of width"
    return f"{said}: no evidence of width once all contrasts are counted" if corrected_away(beyond) else said


Ask = Callable[[str], pa.Table]
#: Fewer held-out problems than this are called few: an interval of a rate is then wider than ±10 points.
FEW = 100
#: An encoder that saw less of the traces than this measured their openings.
COVERED = 0.8
#: How often a training is thought to go wrong, where the reader is told that its seeds may not have shown it.
COLLAPSE = 0.1


def answer(ask: Ask) -> list[str]:
    """Did one arm gain more, does its search give more to learn from, was it learnt, and was it wider.

    What is a difference of form is not told as one of ability (tasks.report.findings).
    """
    summary, form = ask("report_summary").to_pylist(), ask("report_form").to_pylist()
    return [
        *_difference_of_gains(ask("report_difference_of_gains").to_pylist(), form, _audited(ask)),
        _bands(summary, ask("report_band_tests").to_pylist(), form),
        _training(summary, ask("report_gains").to_pylist(), form),
        *width_summary(summary, ask("report_diversity").to_pylist(), ask("report_gaps").to_pylist(), form),
    ]


def _audited(ask: Ask) -> list[str]:
    """What the audit found that the study's own gate forbids."""
    return [row["fact"] for row in ask("report_audit").to_pylist() if row["code"] == "gate"]


def _untold(form: Sequence[Row], gate: Sequence[str], arms: tuple[str, str]) -> str | None:
    """Why the difference of two arms' gains is not told; None if it is. gate: facts about arms, by name."""
    own = [fact for fact in gate if {*arms} & {word.strip(",") for word in fact.split()}]
    kept = f"the study's own gate was not kept: {'; '.join(own)}" if own else None
    return withheld(form, arms, TRAINED) or kept


def _difference_of_gains(rows: Sequence[Row], form: Sequence[Row], gate: Sequence[str]) -> list[str]:
    """A sentence for every two arms: the study's own question comes first. None where nothing was trained."""
    said, trained = list[str](), any(one["sampled"] == TRAINED for one in form)
    for row in rows:
        if row["source"] != "all" or (row["more_gain"] is None and not trained):
            continue
        arms = (row["arm"], row["other"])
        if why := _untold(form, gate, arms):
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
    """What training did to each arm's held-out accuracy. It "moved" only what left zero out of its interval."""
    trained = [row for row in summary if row["gain"] is not None]
    if not trained:
        return "Nothing was trained in this run."
    moved, others, idle = list[str](), list[str](), list[str]()
    for row in trained:
        seed = f" (seed {row['seed']})" if len([r for r in summary if r["arm"] == row["arm"]]) > 1 else ""
        if row["updates"] == 0:
            idle.append(f"{row['arm']}{seed}")
            continue
        climb = f"from {percent(row['heldout_before'])} to {percent(row['heldout_after'])}"
        points = f"({signed(100 * row['gain'])} pp{interval(row['gain_low'], row['gain_high'], 100)})"
        (moved if _apart(row) else others).append(f"{row['arm']}{seed} {climb} {points}")
    said = [f"training moved held-out accuracy of {listed(moved)}"] if moved else []
    said += [f"held-out accuracy went under {listed(others)}"] if others else []
    said += [f"nothing was learnt under {listed(idle)}: training made no update"] if idle else []
    learnt = {row["arm"] for row in trained if row["updates"] != 0}
    for row in (row for row in gains if row["arm"] in learnt):
        held = row["gain_low"] is not None and row["gain_low"] <= 0 <= row["gain_high"]
        if row["source"] == "all" and row["gain_low"] is not None and (held or corrected_away(row)):
            counted = "" if held else " once all gains are counted"
            if held and any(one["arm"] == row["arm"] and _apart(one) for one in summary):
                ends = interval(row["gain_low"], row["gain_high"], 100)
                counted = f" over all its seeds ({signed(100 * row['gain'])} pp{ends})"
            unchanged = _equivalence(row, "that it is unchanged")
            said.append(f"no evidence of a change under {row['arm']}{counted}, {unchanged}")
    if mute := [why for arm in dict.fromkeys(row["arm"] for row in trained) if (why := of_a_mute(form, arm))]:
        said.append(f"{listed(mute)}: a gain is then one of form, not of what is solved")
    if moved_form := [why for row in trained if (why := learnt_form(form, row["arm"], row["seed"]))]:
        said.append(f"part of that is form: {listed(list(dict.fromkeys(moved_form)))}")
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _apart(row: Row) -> bool:
    """Whether a seed's own interval leaves zero out."""
    return row["gain_low"] is not None and not row["gain_low"] <= 0 <= row["gain_high"]


def _conclusions(rows: Sequence[Row], form: Sequence[Row], gate: Sequence[str]) -> list[str]:
    """What the study's own question, which arm gains more, can be answered with and what not. rows: of the difference
    of gains."""
    can, cannot = list[str](), list[str]()
    for row in (row for row in rows if row["source"] == "all"):
        arm, other, low, high = row["arm"], row["other"], row["more_gain_low"], row["more_gain_high"]
        which = f"which of {arm} and {other} gains more"
        least = row["detectable_gain"]
        if why := _untold(form, gate, (arm, other)):
            cannot.append(f"{which} ({why})")
        elif low is None or high is None:
            cannot.append(f"{which} ({row['reason']})")
        elif _equal(row):
            can.append(f"{arm} and {other} gain the same to within {100 * MARGIN:g} pp, for {row['holds_for']}")
        elif low <= 0 <= high or corrected_away(row):
            size = "a difference of any size" if least is None else f"a difference below {100 * least:.1f} pp"
            cannot.append(f"{which} (this study would miss {size})")
        else:
            more, less = (arm, other) if row["more_gain"] > 0 else (other, arm)
            can.append(f"{more} gains more than {less}, for {row['holds_for']}")
    can_be = [f"Can be concluded: {'; '.join(can)}."] if can else []
    return can_be + ([f"Cannot be concluded: {'; '.join(cannot)}."] if cannot else [])


def caveats(ask: Ask) -> list[str]:
    """What can and cannot be concluded, and what the reader must know before believing the answer."""
    rows, form = ask("report_summary").to_pylist(), ask("report_form").to_pylist()
    heldout = {r["n"] for r in ask("report_passk").to_pylist() if r["n"]}
    warned = _conclusions(ask("report_difference_of_gains").to_pylist(), form, _audited(ask))
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
