"""What a measure of width sees: one problem's rollouts under one policy. Axis suffixes: N rollouts, S subsets of k.

Every measure is about k of the n rollouts, averaged over all subsets of k: what k fresh rollouts are expected to show,
whatever n was. So policies with other n compare, and nothing is larger because more was sampled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import comb

import numpy as np

from tasks.domain.partitions.classes import in_order
from tasks.measures.width.windows import Windows


@dataclass(frozen=True, slots=True)
class Group:
    """class_N: of the partition that is looked at, −1 without one. logprob_N, num_tokens_N: of whole completions, NaN
    where unknown. vectors_ND: of traces, NaN without one. windows: of a length that is looked at. vocabulary: different
    words in such windows of all policies that are compared."""

    class_N: np.ndarray
    correct_N: np.ndarray
    logprob_N: np.ndarray
    num_tokens_N: np.ndarray
    vectors_ND: np.ndarray
    windows: Windows | None = None
    vocabulary: int = 0

    def __len__(self) -> int:
        return len(self.class_N)

    def only(self, kept_N: np.ndarray) -> Group:
        """These rollouts alone."""
        at = np.flatnonzero(kept_N)
        return replace(
            self,
            class_N=self.class_N[at],
            correct_N=self.correct_N[at],
            logprob_N=self.logprob_N[at],
            num_tokens_N=self.num_tokens_N[at],
            vectors_ND=self.vectors_ND[at],
            windows=None if self.windows is None else self.windows.only(at),
        )

    @property
    def words(self) -> Windows:
        """Errors: ValueError where none are looked at."""
        if self.windows is None:
            raise ValueError("a group without windows has no words")
        return self.windows

    @property
    def classed(self) -> Group:
        return self.only(self.class_N >= 0)

    @property
    def counts(self) -> np.ndarray:
        """Rollouts of each class, largest first."""
        return np.sort(np.bincount(in_order(self.class_N[self.class_N >= 0])))[::-1] if len(self) else np.zeros(0, int)


@lru_cache(maxsize=4096)
def none_of(n: int, size: int, k: int) -> float:
    """Chance that k of n rollouts hold none of a class of this size.

    >>> none_of(4, 2, 2)
    0.16666666666666666
    """
    return comb(n - size, k) / comb(n, k)
