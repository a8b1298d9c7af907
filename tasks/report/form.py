"""Is a contrast one of form? What the rows of `report_form` allow the report's sentences to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.domain.gate import SHARES, Gate, Reason, ScreenedArm, reasons
from tasks.report.svg import percent
from tasks.report.wording import listed

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
