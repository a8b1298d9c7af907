"""How surely a mean is known that varies with problems and with seeds, each with degrees of freedom of its own.

Half an interval is √(t²(seeds) · variance of seeds + t²(problems) · variance of problems). Satterthwaite's one quantile
for the sum is short where few seeds agree by chance: their small variance then counts as well known (docs/coverage.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FARTHEST = -200.0  # decimal exponent of the smallest chance that is told from 0


@dataclass(frozen=True, slots=True)
class Spread:
    """Variance_V of a mean over problems and what seeds add to it, each with its degrees of freedom."""

    problems_V: np.ndarray
    problems_df_V: np.ndarray
    seeds_V: np.ndarray
    seeds_df_V: np.ndarray

    @property
    def variance_V(self) -> np.ndarray:
        return self.problems_V + self.seeds_V

    def half(self, tail: float | np.ndarray) -> np.ndarray:
        """Half-width_V of the interval that leaves so much out on either side."""
        from scipy.special import stdtrit  # scipy.stats takes a millisecond a call

        return np.sqrt(
            stdtrit(self.problems_df_V, tail) ** 2 * self.problems_V
            + stdtrit(self.seeds_df_V, tail) ** 2 * self.seeds_V
        )

    def beyond(self, distance_V: np.ndarray) -> np.ndarray:
        """The chance_V of an estimate further than this on one side: what the interval of this half-width leaves out.

        >>> one = Spread(np.array([4.0]), np.array([9.0]), np.array([1.0]), np.array([2.0]))
        >>> one.beyond(one.half(0.03)).round(6).tolist(), one.beyond(-one.half(0.03)).round(6).tolist()
        ([0.03], [0.97])
        """
        from scipy.special import stdtr

        error_V = np.sqrt(np.where(self.problems_V > 0, self.problems_V, 1.0))
        alone_V = np.asarray(stdtr(self.problems_df_V, -distance_V / error_V))
        if not self.seeds_V.any():
            return alone_V
        low_V, high_V = np.full(len(distance_V), FARTHEST), np.full(len(distance_V), np.log10(0.5))
        for _ in range(50):
            middle_V = (low_V + high_V) / 2
            further_V = self.half(10**middle_V) > np.abs(distance_V)
            low_V, high_V = np.where(further_V, middle_V, low_V), np.where(further_V, high_V, middle_V)
        tail_V = 10**high_V
        return np.where(self.seeds_V > 0, np.where(distance_V < 0, 1 - tail_V, tail_V), alone_V)
