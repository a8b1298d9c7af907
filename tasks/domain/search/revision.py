"""Methods with questions that quote earlier attempts: revision, critique, a panel of traces, debate, evolution."""

import random
from collections.abc import Sequence

from pydantic.dataclasses import dataclass

from storage.artifacts.fingerprint import derived_seed
from tasks.domain.ranges import AtLeastOne, AtLeastTwo
from tasks.domain.search.method import Ask, Candidate, Method, Round, Rounds, answered, asking, direct_rollouts
from tasks.domain.search.selection import most_voted, votes


def newest(candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the last candidate that answers the problem."""
    return next(iter(reversed(answered(candidates))), None)


def with_answer(c: Candidate) -> str:
    return f"{c.words}\n\nIts answer: {c.answer or 'none'}"


def listed(attempts: Sequence[Candidate]) -> str:
    return "\n\n".join(
        f"Attempt {place}:\n{c.words}\nIts answer: {c.answer or 'none'}" for place, c in enumerate(attempts, start=1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision(Method):
    """Sequential revision (Snell et al. 2024, arXiv 2408.03314): the policy reads its last attempt and tries again, and
    its last answer is the result. revisions: the largest number of revisions."""

    revisions: AtLeastOne = 4

    def rounds(self, question: str) -> Rounds:
        seen = yield Round((Ask(),))
        for _ in range(self.revisions):
            text = (
                f"An earlier attempt:\n{with_answer(seen[-1])}\n\nCheck the attempt, mend what is wrong in it, and"
                " solve the problem."
            )
            seen = yield Round((asking("revise", question, seen[-1:], text),), newest(seen))
        return newest(seen)

    @property
    def most(self) -> tuple[int, int]:
        return 1, self.revisions


@dataclass(frozen=True, slots=True, kw_only=True)
class Refine(Method):
    """Self-refine (Madaan et al. 2023, arXiv 2303.17651): attempt, critique, new attempt. The last answer is the
    result. refinements: the largest number of new attempts."""

    refinements: AtLeastOne = 2

    def rounds(self, question: str) -> Rounds:
        seen = yield Round((Ask(),))
        for _ in range(self.refinements):
            attempt = seen[-1]
            seen = yield Round((criticising(question, attempt),), newest(seen))
            seen = yield Round((refining(question, attempt, seen[-1]),), newest(seen))
        return newest(seen)

    @property
    def most(self) -> tuple[int, int]:
        return 1, 2 * self.refinements


def criticising(question: str, attempt: Candidate) -> Ask:
    text = (
        f"An attempt at it:\n{with_answer(attempt)}\n\nDo not solve the problem: name the first mistake of the attempt,"
        " or say that there is none."
    )
    return asking("criticise", question, [attempt], text, answers=False)


def refining(question: str, attempt: Candidate, critique: Candidate) -> Ask:
    text = (
        f"An attempt at it:\n{attempt.words}\n\nA critique of the attempt:\n{critique.words}\n\nSolve the"
        " problem, and heed what of the critique is right."
    )
    return asking("refine", question, [attempt, critique], text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelOfTraces(Method):
    """Panel of traces: several attempts are summarised, and the problem is solved with the summary in the prompt. The
    result is the answer of this last attempt, or else the most frequent answer. width: number of attempts."""

    width: AtLeastTwo = 4

    def rounds(self, question: str) -> Rounds:
        seen = yield Round(tuple(Ask(index=index) for index in range(self.width)))
        attempts = direct_rollouts(seen)
        text = (
            f"{listed(attempts)}\n\nDo not solve the problem: say in a few lines where the attempts agree, where they"
            " differ, and which of their steps are right."
        )
        seen = yield Round((asking("summarise", question, attempts, text, answers=False),), most_voted(seen))
        text = f"What several attempts found:\n{seen[-1].words}\n\nSolve the problem."
        seen = yield Round((asking("conclude", question, seen[-1:], text),), most_voted(attempts))
        return seen[-1] if seen[-1].answer is not None else most_voted(direct_rollouts(seen))

    @property
    def most(self) -> tuple[int, int]:
        return self.width, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Debate(Method):
    """Debate (Du et al. 2023, arXiv 2305.14325): several agents solve the problem, read one another, and solve it
    again. The result is the majority of the last round with an answer. agents: per round. turns: later rounds."""

    agents: AtLeastTwo = 3
    turns: AtLeastOne = 2

    def rounds(self, question: str) -> Rounds:
        seen = yield Round(tuple(Ask(index=index) for index in range(self.agents)))
        last, best = list(seen), most_voted(seen)
        for turn in range(1, self.turns + 1):
            before, asks = len(seen), []
            for own in range(len(last)):
                order = [last[own], *last[:own], *last[own + 1 :]]
                text = (
                    f"{listed(order)}\n\nThe first attempt is yours, the others are your colleagues'. Weigh what they"
                    " say, and solve the problem."
                )
                asks.append(asking("debate", question, order, text, round=turn))
            seen = yield Round(tuple(asks), best)
            last = list(seen[before:])
            best = most_voted(last) or best
        return best

    @property
    def most(self) -> tuple[int, int]:
        return self.agents, self.agents * self.turns


#: Added to every fitness, so that an attempt with a fitness of 0 can be a parent too.
LEAST = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution(Method):
    """Evolutionary search after Mind Evolution (Lee et al. 2025, arXiv 2501.09891). Parents are chosen by fitness from
    islands of attempts, and the policy makes a child of two parents. Fit attempts migrate, and the worst island is
    reset. The result is the most frequent answer of all attempts.

    The paper has an evaluator of solutions; here fitness is the share of all attempts so far with the same answer. A
    parent's probability is proportional to its fitness; the paper takes the softmax, which is almost uniform for
    shares. There are always two different parents (paper: none to five). A child is one completion (paper: several
    turns of a critic and an author). population: attempts of each island. generations: after the first. reset_every:
    generations between resets, in which the island with the lowest mean fitness takes the fittest attempts of the
    others.
    """

    islands: AtLeastOne = 2
    population: AtLeastTwo = 4
    generations: AtLeastOne = 2
    reset_every: AtLeastOne = 2

    def rounds(self, question: str) -> Rounds:
        seen = yield Round(tuple(Ask(index=index) for index in range(self.most[0])))
        islands = [list(seen[start : start + self.population]) for start in range(0, len(seen), self.population)]
        for generation in range(1, self.generations + 1):
            fitness = agreement(seen)
            if len(islands) > 1:
                islands = migrated(islands, fitness)
                if generation % self.reset_every == 0:
                    reset(islands, fitness)
            asks = []
            for i, island in enumerate(islands):
                for j in range(self.population):
                    pair = parents(island, fitness, (generation, i, j))
                    text = (
                        f"{listed(pair)}\n\nFind what is right and what is wrong in each, join what is right, and solve"
                        " the problem."
                    )
                    index = i * self.population + j
                    asks.append(asking("cross", question, pair, text, round=generation, index=index))
            before = len(seen)
            seen = yield Round(tuple(asks), most_voted(seen))
            place = {ask.index: i // self.population for i, ask in enumerate(asks)}
            children: list[list[Candidate]] = [[] for _ in islands]
            for child in seen[before:]:
                children[place[child.ask.index]].append(child)
            islands = [some or island for some, island in zip(children, islands, strict=True)]
        return most_voted(seen)

    @property
    def most(self) -> tuple[int, int]:
        size = self.islands * self.population
        return size, size * self.generations


def agreement(seen: Sequence[Candidate]) -> dict[str, float]:
    """Return candidate → share of all answers that are equal to its answer; 0 for a candidate without an answer."""
    counted, whole = votes(seen), max(len(answered(seen)), 1)
    return {c.name: counted.get(c.answer or "", 0.0) / whole if c.answer is not None else 0.0 for c in seen}


def parents(
    island: Sequence[Candidate], fitness: dict[str, float], place: tuple[int, int, int]
) -> tuple[Candidate, ...]:
    """Return two different members of an island, chosen at random in proportion to fitness. An island with one member
    returns it alone. The seed depends on the members and on the child's place."""
    rng = random.Random(derived_seed([c.name for c in island], list(place)))
    left, pair = {c.name: c for c in island}, list[Candidate]()
    while left and len(pair) < 2:
        [name] = rng.choices(list(left), [fitness[name] + LEAST for name in left])
        pair.append(left.pop(name))
    return tuple(pair)


def migrated(islands: Sequence[list[Candidate]], fitness: dict[str, float]) -> list[list[Candidate]]:
    """Copy the fittest attempt of every island to the next island."""
    best = [max(island, key=lambda c: fitness[c.name]) for island in islands]
    return [[*island, best[place - 1]] for place, island in enumerate(islands)]


def reset(islands: list[list[Candidate]], fitness: dict[str, float]) -> None:
    """Fill the worst island with the fittest attempts of all islands."""
    means = [sum(fitness[c.name] for c in island) / len(island) for island in islands]
    worst = means.index(min(means))
    everybody = {c.name: c for island in islands for c in island}.values()
    islands[worst] = sorted(everybody, key=lambda c: -fitness[c.name])[: len(islands[worst])]
