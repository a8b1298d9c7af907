"""Pass@k policy optimisation (Walder and Karkhanis 2025, arXiv 2505.15201)."""

from __future__ import annotations

from tasks.domain.grpo.advantages.group import Advantages, Context, Group, all_wrong, centred_form


def pkpo(group: Group, context: Context) -> Advantages:
    """What each rollout adds to the pass@k of the k that it is drawn with, times k / G: unbiased for the gradient of
    pass@k, with the baseline of least variance, the same k - 1 without it. A right one adds where they all are wrong,
    (k / G) (1 - ρ(G - 1, c - 1, k - 1)) of c right; a wrong one adds nothing. What form adds is centred beside it.

    >>> from numpy import array
    >>> r = array([1.0, 1.0, 0.0, 0.0])
    >>> pkpo(Group(r, r), Context(k=2))[0].round(4).tolist()
    [0.3333, 0.3333, 0.0, 0.0]
    """
    size, right, k = len(group.correct_G), group.num_correct, context.k
    form = centred_form(group)
    if not right:
        return form, {}
    return group.correct_G * (k / size) * all_wrong(size - 1, right - 1, k - 1) + form, {}
