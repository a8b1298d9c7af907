"""Methods that sample independent rollouts of the problem and pick one answer by rank, by votes or by a score."""

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal

from pydantic.dataclasses import dataclass

from tasks.domain.ranges import AtLeastOne, ShareAboveZero
from tasks.domain.search.method import CERTAINTY, Ask, Candidate, Method, Round, Rounds, answered, asking


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel(Method):
    """Base of methods that sample rollouts in parallel and pick one of them. width: the largest number of rollouts."""

    width: AtLeastOne = 16

    @abstractmethod
    def choose(self, seen: Sequence[Candidate]) -> Candidate | None: ...

    def is_decided(self, seen: Sequence[Candidate]) -> bool:
        """Return whether the result is certain without further rollouts."""
        return False

    def rounds(self, question: str) -> Rounds:
        seen: Sequence[Candidate] = ()
        for index in range(self.width):
            seen = yield Round((Ask(index=index),), self.choose(seen))
            if self.is_decided(seen):
                break
        return self.choose(seen)

    @property
    def sure(self) -> int:
        return self.width

    @property
    def most(self) -> tuple[int, int]:
        return self.width, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class First(Parallel):
    """The answer of the first rollout: the baseline of all other methods. Up to `width` rollouts are sampled; pass@1
    and the oracle are computed from the verdicts on all of them."""

    def choose(self, seen: Sequence[Candidate]) -> Candidate | None:
        return seen[0] if seen else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked(Parallel):
    """Best-of-n: the first rollout with the highest score among those with an answer."""

    @abstractmethod
    def score(self, c: Candidate) -> float: ...

    def choose(self, seen: Sequence[Candidate]) -> Candidate | None:
        return max(answered(seen), key=self.score, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeliest(Ranked):
    """Best-of-n by the mean log-prob per token."""

    def score(self, c: Candidate) -> float:
        return c.likelihood


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortest(Ranked):
    """Best-of-n by length: the shortest rollout with an answer."""

    def score(self, c: Candidate) -> float:
        return -c.num_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewarded(Ranked):
    """Best-of-n by a reward model (Cobbe et al. 2021, arXiv 2110.14168). Rollouts without a score come last."""

    def score(self, c: Candidate) -> float:
        return c.scores[-1] if c.scores else -1.0

    @property
    def reward(self) -> str:
        return "outcome"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCertainty(Rewarded):
    """Best-of-n by self-certainty (Kang, Zhao and Song 2025, arXiv 2502.18581): the mean divergence of the token
    distributions from the uniform distribution."""

    @property
    def reward(self) -> str:
        return CERTAINTY


def votes(seen: Sequence[Candidate], weight: Callable[[Candidate], float] = lambda _: 1.0) -> dict[str, float]:
    """Return answer → total weight of its rollouts, in the order in which answers first occur."""
    found: dict[str, float] = {}
    for c in answered(seen):
        found[c.answer or ""] = found.get(c.answer or "", 0.0) + weight(c)
    return found


def most_voted(seen: Sequence[Candidate], weight: Callable[[Candidate], float] = lambda _: 1.0) -> Candidate | None:
    """Return the first candidate with the answer of largest weight. If weights are equal, the earlier answer wins."""
    weighed = votes(seen, weight)
    best = max(weighed, key=weighed.__getitem__, default=None)
    return next((c for c in answered(seen) if c.answer == best), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Majority(Parallel):
    """Majority voting, or self-consistency (Wang et al. 2022, arXiv 2203.11171)."""

    def choose(self, seen: Sequence[Candidate]) -> Candidate | None:
        return most_voted(seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedMajority(Majority):
    """Majority voting with weighted rollouts. by: `likelihood`, the geometric mean of a rollout's token probabilities,
    or `length`, one divided by its tokens."""

    by: Literal["likelihood", "length"] = "likelihood"

    def choose(self, seen: Sequence[Candidate]) -> Candidate | None:
        return most_voted(
            seen, lambda c: math.exp(c.likelihood) if self.by == "likelihood" else 1.0 / max(c.num_tokens, 1)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStopped(Majority):
    """Adaptive consistency (Aggarwal et al. 2023, arXiv 2305.11860): majority voting that stops once the leading answer
    is certain enough. sure_at: required probability that the leading answer would also win with more rollouts."""

    sure_at: ShareAboveZero = 0.95

    def is_decided(self, seen: Sequence[Candidate]) -> bool:
        leader, second = [*sorted(votes(seen).values(), reverse=True), 0.0, 0.0][:2]
        return bool(leader) and leads(int(leader), int(second)) >= self.sure_at

    @property
    def sure(self) -> int:
        return 0


def leads(leader: int, second: int) -> float:
    """Return the probability that the leading answer is the more likely one of two, given their votes and a uniform
    prior. This is the probability that a Beta(leader + 1, second + 1) exceeds one half, a sum of binomials.

    >>> leads(0, 0), leads(1, 0), round(leads(4, 0), 5), leads(2, 2)
    (0.5, 0.75, 0.96875, 0.5)
    """
    n = leader + second + 1
    return sum(math.comb(n, j) for j in range(leader + 1)) / 2**n


#: The highest score that the policy may give an answer.
BEST = 10.0
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfScore(Method):
    """Best-of-n by self-rating: the policy itself scores each of its answers. width: the largest number of rollouts."""

    width: AtLeastOne = 8

    def rounds(self, question: str) -> Rounds:
        seen: Sequence[Candidate] = ()
        for index in range(self.width):
            seen = yield Round((Ask(index=index),), best_scored(seen))
            if seen[-1].answer is not None:
                about = f"A proposed solution:\n{seen[-1].words}\n\nIts answer: {seen[-1].answer}"
                ask = scoring(question, seen[-1], about, "that this answer is right")
                seen = yield Round((ask,), best_scored(seen))
        return best_scored(seen)

    @property
    def most(self) -> tuple[int, int]:
        return self.width, self.width


def scoring(question: str, candidate: Candidate, about: str, what: str) -> Ask:
    text = (
        f"{about}\n\nHow likely is it {what}? Do not solve the problem: your own answer is one number from 0 (surely"
        f" wrong) to {BEST:.0f} (surely right)."
    )
    return asking("score", question, [candidate], text, answers=False)


def scores(seen: Sequence[Candidate]) -> dict[str, float]:
    """Return candidate → its score in [0, 1], without candidates whose score cannot be read."""
    return {
        c.ask.parents[0]: min(float(c.answer), BEST) / BEST
        for c in seen
        if c.ask.operator == "score" and c.answer and _NUMBER.fullmatch(c.answer)
    }


def best_scored(seen: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate with the highest score, or of equal scores the likeliest. Unscored candidates come last."""
    given = scores(seen)
    return max(answered(seen), key=lambda c: (given.get(c.name, -1.0), c.likelihood), default=None)
