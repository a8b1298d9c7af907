"""Whether one arm's traces lie further apart than another's, and whether more than a shift closes their pass@k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.report.form import START, TRAINED, unlike, withheld
from tasks.report.svg import number
from tasks.report.wording import corrected_away, interval, signed

Row = dict[str, Any]


def told_width(summary: Sequence[Row], compared: Sequence[Row], gaps: Sequence[Row], form: Sequence[Row]) -> list[str]:
    """A sentence for every two arms, at the earliest steps at which they were compared."""
    rows = [r for r in compared if r["metric"] == "diversity" and r["difference"] is not None]
    if len({r["arm"] for r in summary}) == 1:
        return [_of_one(rows)]
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


def _of_one(rows: Sequence[Row]) -> str:
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
