"""Is a contrast one of form? What the rows of `report_form` allow the report's sentences to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.report.svg import percent

Row = dict[str, Any]
#: Where an arm leaves so many of its rollouts without an answer, what is compared is whether it answers at all.
MUTE = 0.5
#: Shares that differ by so much can make a difference that is not one of ability.
UNLIKE = 0.1
SCREENING, START, TRAINED = "screening", "held-out, start", "held-out, trained"
_SHARES = (("no_answer", "gave no answer"), ("invalid_tags", "had no valid tags"), ("truncated", "were cut off"))


def withheld(form: Sequence[Row], arms: Sequence[str], sampled: str) -> str | None:
    """Why nothing is said of these arms' difference: one of them hardly answers. Null if they do."""
    mute = [r for r in form if r["sampled"] == sampled and r["arm"] in arms and r["no_answer"] >= MUTE]
    if not mute:
        return None
    worst = max(mute, key=lambda r: r["no_answer"])
    return (
        f"{percent(worst['no_answer'])} of the rollouts of {worst['arm']} gave no answer and"
        f" {percent(worst['invalid_tags'])} had no valid tags, so what differs is form and not what is solved"
    )


def of_a_mute(form: Sequence[Row], arm: str) -> str:
    """What share of an arm's rollouts gave no answer before training or after, where most did; else empty."""
    shares = [r["no_answer"] for r in form if r["arm"] == arm and r["sampled"] in (START, TRAINED)]
    worst = max(shares, default=0.0)
    return f"{percent(worst)} of the rollouts of {arm} gave no answer" if worst >= MUTE else ""


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
