"""Step search: answers are written step by step, and each partial answer (path) is scored after every step. The methods
are beams, diverse trees, particles and Monte Carlo tree search."""

import dataclasses
import random
from abc import abstractmethod
from collections import Counter
from collections.abc import Generator, Sequence
from math import exp, inf, log, prod, sqrt
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from storage.artifacts.fingerprint import derived_seed
from storage.errors import UserError
from tasks.domain.ranges import AtLeastOne, AtLeastTwo, Real
from tasks.domain.search.method import Ask, Candidate, Method, Round, Rounds, answered
from tasks.domain.search.selection import scores, scoring

By = Literal["self", "likelihood", "process", "outcome"]
OVER = {"last": lambda scores: scores[-1], "least": min, "product": prod}
#: Yields requests for the next steps, and none at the end. It is sent the new steps and the scores of all paths.
Plan = Generator[Sequence[Ask], tuple[list[Candidate], dict[str, float]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSearch(Method):
    """Base of step searches. The result is the finished path with the highest score, or of equal scores the likeliest.

    - by: the source of scores: `self` (the policy rates a path), `likelihood` (mean probability of its tokens), or a
      reward model, for every step (`process`) or for the whole path (`outcome`).
    - over: how the scores of a path's steps are combined.
    - end: the text that ends a step. depth: the largest number of steps.
    """

    in_steps: ClassVar[bool] = True
    by: By = "self"
    over: Literal["last", "least", "product"] = "least"
    end: str = "\n\n"
    depth: AtLeastOne = 16

    def check(self) -> None:
        if not self.end:
            raise UserError("end is empty; set the text that ends a step")

    @property
    def reward(self) -> str:
        return self.by if self.by in ("process", "outcome") else ""

    @property
    def most(self) -> tuple[int, int]:
        return 0, self.steps * (2 if self.by == "self" else 1)

    @property
    @abstractmethod
    def steps(self) -> int:
        """Return the largest number of steps that the search requests."""

    @abstractmethod
    def plan(self) -> Plan: ...

    def next_steps(self, parent: Candidate | None, number: int, first: int = 0) -> list[Ask]:
        """Return requests for the next steps of a path; for first steps if `parent` is None."""
        parents = () if parent is None else (parent.name,)
        indices = range(first, first + number)
        return [Ask(operator="step", parents=parents, index=index, end=self.end) for index in indices]

    def rounds(self, question: str) -> Rounds:
        seen: Sequence[Candidate] = ()
        plan = self.plan()
        asks = next(plan)
        while asks:
            seen, wanted = (yield Round(tuple(asks), self.best(seen))), {*asks}
            new = [c for c in seen if c.ask in wanted]
            if self.by == "self" and new:
                what = "that it leads to the right answer"
                judged = [scoring(question, c, f"A solution so far:\n{c.words}", what) for c in new]
                seen = yield Round(tuple(judged), self.best(seen))
            asks = plan.send((new, self.values(seen)))
        return self.best(seen)

    def values(self, seen: Sequence[Candidate]) -> dict[str, float]:
        """Return each candidate's score in [0, 1]; 0 for a candidate without a score."""
        if self.by == "likelihood":
            return {c.name: exp(c.likelihood) for c in seen if c.ask.end}
        if self.by == "self":
            return dict.fromkeys((c.name for c in seen if c.ask.end), 0.0) | scores(seen)
        return {c.name: OVER[self.over](c.scores) if c.scores else 0.0 for c in seen if c.ask.end}

    def best(self, seen: Sequence[Candidate]) -> Candidate | None:
        found = self.values(seen)
        return max(answered(seen), key=lambda c: (found[c.name], c.likelihood), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beam(StepSearch):
    """Beam search over steps (Snell et al. 2024, arXiv 2408.03314): the best paths are kept and extended. A finished
    path stays in the beam. beams: number of paths that are kept. expand: number of next steps of each path."""

    beams: AtLeastOne = 4
    expand: AtLeastOne = 4

    def plan(self) -> Plan:
        asks, places = self.next_steps(None, self.beams * self.expand), self.beams
        for _ in range(self.depth):
            new, found = yield asks
            kept = sorted(new, key=lambda c: (-found[c.name], -c.likelihood))[:places]
            live = [c for c in kept if not c.ended]
            places = len(live)
            asks = [ask for c in live for ask in self.next_steps(c, self.expand)]
        yield ()

    @property
    def steps(self) -> int:
        return self.beams * self.expand * self.depth


@dataclass(frozen=True, slots=True, kw_only=True)
class DVTS(StepSearch):
    """Diverse verifier tree search (Beeching, Tunstall and Rush 2024, search-and-learn): each tree keeps its best path
    and does not compete with others. trees: number of trees. expand: number of next steps of a path."""

    trees: AtLeastOne = 4
    expand: AtLeastOne = 4

    def plan(self) -> Plan:
        asks = [self.next_steps(None, self.expand, tree * self.expand) for tree in range(self.trees)]
        for _ in range(self.depth):
            new, found = yield [ask for tree in asks for ask in tree]
            came = {c.ask: c for c in new}
            grown = [[came[ask] for ask in tree if ask in came] for tree in asks]
            best = [max(tree, key=lambda c: (found[c.name], c.likelihood)) for tree in grown if tree]
            asks = [self.next_steps(c, self.expand) for c in best if not c.ended]
        yield ()

    @property
    def steps(self) -> int:
        return self.trees * self.expand * self.depth


#: Scores are kept at least this far from 0 and 1, which bounds their odds.
NEAREST = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Particles(StepSearch):
    """Particle filtering over steps (Puri et al. 2025, arXiv 2502.01618): after every step, paths are resampled in
    proportion to their weights, the softmax of the scores' log-odds. particles: paths. temperature: of the softmax."""

    particles: AtLeastTwo = 8
    temperature: Annotated[Real, Field(gt=0)] = 1.0

    def plan(self) -> Plan:
        asks, ended = self.next_steps(None, self.particles), list[Candidate]()
        for depth in range(self.depth):
            new, found = yield asks
            paths = [*ended, *new]
            rng = random.Random(derived_seed([c.name for c in paths], depth))
            chances = weights([found[c.name] for c in paths], self.temperature)
            resampled_paths = rng.choices(paths, chances, k=self.particles)
            ended = [c for c in resampled_paths if c.ended]
            times = Counter(c.name for c in resampled_paths)
            live = {c.name: c for c in resampled_paths if not c.ended}
            asks = [ask for c in live.values() for ask in self.next_steps(c, times[c.name])]
        yield ()

    @property
    def steps(self) -> int:
        return self.particles * self.depth


def weights(scores: Sequence[float], temperature: float) -> list[float]:
    """Return the softmax of the scores' log-odds.

    >>> weights([0.5, 0.75], 1.0), [round(weight, 9) for weight in weights([0.5, 0.75], 0.5)]
    ([0.25, 0.75], [0.1, 0.9])
    """
    held = [min(max(score, NEAREST), 1 - NEAREST) for score in scores]
    odds = [score / (1 - score) for score in held]
    shares = [(one / max(odds)) ** (1 / temperature) for one in odds]  # dividing by the largest avoids overflow
    return [share / sum(shares) for share in shares]


@dataclass(frozen=True, slots=True, kw_only=True)
class MCTS(StepSearch):
    """Monte Carlo tree search over steps (UCT, Kocsis and Szepesvári 2006). Each round expands the path with the
    largest upper confidence bound. The scores of its next steps replace playouts. simulations: the largest number of
    expansions. expand: number of next steps. explore: weight of the uncertainty."""

    simulations: AtLeastOne = 16
    expand: AtLeastOne = 3
    explore: Annotated[Real, Field(ge=0)] = 1.4

    def plan(self) -> Plan:
        root = Place(None, 0)
        for _ in range(self.simulations):
            path = chosen(root, self.explore, self.depth)
            if not path:
                break
            leaf = path[-1]
            new, found = yield self.next_steps(leaf.candidate, self.expand)
            leaf.below = [Place(c, leaf.depth + 1) for c in new]
            for place, c in zip(leaf.below, new, strict=True):
                for one in (*path, place):
                    one.visits += 1
                    one.total += found[c.name]
        yield ()

    @property
    def steps(self) -> int:
        return self.simulations * self.expand


@dataclasses.dataclass(slots=True)
class Place:
    """A node of the tree. The root has no candidate. below: the node's children; None until the node is expanded."""

    candidate: Candidate | None
    depth: int
    below: "list[Place] | None" = None
    visits: int = 0
    total: float = 0.0

    def upper(self, visits: int, explore: float) -> float:
        """Return a node's upper confidence bound.

        >>> Place(None, 1, visits=4, total=2.0).upper(8, 0.0), Place(None, 1).upper(8, 1.0)
        (0.5, inf)
        """
        return self.total / self.visits + explore * sqrt(log(visits) / self.visits) if self.visits else inf


def chosen(root: Place, explore: float, depth: int) -> list[Place]:
    """Return the path from the root to the node that is expanded next; empty if all paths have ended."""
    if root.below is None:
        ended = root.depth >= depth or (root.candidate is not None and root.candidate.ended)
        return [] if ended else [root]
    open_ = [(place, rest) for place in root.below if (rest := chosen(place, explore, depth))]
    best = max(open_, key=lambda one: one[0].upper(root.visits, explore), default=None)
    return [root, *best[1]] if best else []
