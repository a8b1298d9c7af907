"""What k rollouts amount to when one answer must be given: by majority, or by the rollout that scores best."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np


def majority_chance(answers: Sequence[Hashable | None], correct: Sequence[bool], chosen_SK: np.ndarray) -> float:
    """Mean over the subsets of whether their most frequent answer is right; tied answers share the vote.

    chosen_SK: indices of each subset's rollouts. A rollout without an answer casts no vote; no vote is wrong.

    >>> majority_chance(["a", "a", "b", None], [True, True, False, False], np.array([[0, 1, 2], [0, 2, 3]]))
    0.75
    """
    names = {a: i for i, a in enumerate(dict.fromkeys(a for a in answers if a is not None))}
    if not names:
        return 0.0
    vote_NC = np.zeros((len(answers), len(names)))
    right_C = np.zeros(len(names), bool)
    for i, a in enumerate(answers):
        if a is not None:
            vote_NC[i, names[a]] = 1
            right_C[names[a]] |= bool(correct[i])
    votes_SC = vote_NC[chosen_SK].sum(axis=1)
    best_SC = (votes_SC == votes_SC.max(axis=1, keepdims=True)) & (votes_SC > 0)
    return float(((best_SC * right_C).sum(axis=1) / np.maximum(best_SC.sum(axis=1), 1)).mean())


def best_chance(
    answers: Sequence[Hashable | None], correct: Sequence[bool], scores: Sequence[float], chosen_SK: np.ndarray
) -> float:
    """Mean over the subsets of whether the rollout of the highest score among those with an answer is right (the
    first of equals); none answered is wrong.

    >>> best_chance(["a", None, "b"], [True, False, False], [-5, -1, -9], np.array([[0, 1, 2], [1, 2, 1]]))
    0.5
    """
    has = np.array([a is not None for a in answers])
    score = np.where(has, np.asarray(scores, np.float64), -np.inf)
    first = np.take_along_axis(chosen_SK, score[chosen_SK].argmax(axis=1)[:, None], axis=1)[:, 0]
    return float((np.asarray(correct, bool)[first] & has[first]).mean())
