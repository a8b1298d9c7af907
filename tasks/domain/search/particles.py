"""Particle filtering over steps (Puri et al. 2025, arXiv 2502.01618): beginnings are drawn anew after every step in
proportion to their weight, so that a good one may go on more than once and a poor one need not be lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from storage.artifacts.fingerprint import derived_seed
from tasks.domain.ranges import Within
from tasks.domain.search.method import Candidate, Rounds
from tasks.domain.search.steps import StepSearch
from tasks.domain.search.widths import AtLeastTwo

#: Scores nearer to 0 or 1 count as this near: their odds would have no bound.
NEAREST = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Particles(StepSearch):
    """particles: beginnings at once. temperature: of the weights, which are the softmax of the scores' log-odds."""

    particles: AtLeastTwo = 8
    temperature: Annotated[float, Within(0, without="least")] = 1.0

    def rounds(self, question: str) -> Rounds:
        """The answer of the highest score among those that ended."""
        seen: Sequence[Candidate] = ()
        asks, ended = [self.step(None, index) for index in range(self.particles)], list[Candidate]()
        for depth in range(self.depth):
            new, seen = yield from self.grown(question, asks, seen)
            found = self.values(seen)
            drawn = resampled([*ended, *new], found, self.particles, self.temperature, depth)
            ended = [c for c in drawn if c.ended]
            times = Counter(c.name for c in drawn)
            live = {c.name: c for c in drawn if not c.ended}
            if not live:
                break
            asks = [self.step(c, index) for c in live.values() for index in range(times[c.name])]
        return self.best(seen)

    @property
    def steps(self) -> int:
        return self.particles * self.depth


def weights(scores: Sequence[float], temperature: float) -> list[float]:
    """
    >>> weights([0.5, 0.75], 1.0), [round(weight, 9) for weight in weights([0.5, 0.75], 0.5)]
    ([0.25, 0.75], [0.1, 0.9])
    """
    held = [min(max(score, NEAREST), 1 - NEAREST) for score in scores]
    odds = [score / (1 - score) for score in held]
    shares = [(one / max(odds)) ** (1 / temperature) for one in odds]  # of the largest: powers of odds may overflow
    return [share / sum(shares) for share in shares]


def resampled(
    particles: Sequence[Candidate], scores: dict[str, float], count: int, temperature: float, depth: int
) -> list[Candidate]:
    """So many of them, by weight: a function of who they are and of how far they have come."""
    rng = random.Random(derived_seed([c.name for c in particles], depth))
    return rng.choices(particles, weights([scores[c.name] for c in particles], temperature), k=count)
