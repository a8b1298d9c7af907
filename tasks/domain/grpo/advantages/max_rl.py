"""MaxRL (2026, arXiv 2602.02710)."""

from __future__ import annotations

from tasks.domain.grpo.advantages.group import Advantages, Context, Group, centred_form


def max_rl(group: Group, _: Context) -> Advantages:
    """Correctness centred and divided by its mean, so that a hard problem's rare right answer weighs most: of one right
    in G it is G - 1. What form adds is centred beside it; a group with no right answer trains form alone.

    >>> from numpy import array
    >>> r = array([1.0, 0.0, 0.0, 0.0])
    >>> max_rl(Group(r, r), Context())[0].tolist()
    [3.0, -1.0, -1.0, -1.0]
    """
    form = centred_form(group)
    if not group.num_correct:
        return form, {}
    share = group.correct_G.mean()
    return (group.correct_G - share) / share + form, {}
