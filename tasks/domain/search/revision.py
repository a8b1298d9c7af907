"""Methods whose later questions hold earlier attempts: revision, critique, a panel of traces, debate, evolution."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pydantic.dataclasses import dataclass

from storage.artifacts.fingerprint import derived_seed
from tasks.domain.ranges import AtLeastOne, AtLeastTwo
from tasks.domain.search.method import Ask, Candidate, Method, Round, Rounds, answered, drawn, newest
from tasks.domain.search.selection import most_voted, votes


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision(Method):
    """Sequential revision (Snell et al. 2024, arXiv 2408.03314): the policy sees its last attempt and tries again.

    revisions: at most, one after another.
    """

    revisions: AtLeastOne = 4

    def rounds(self, question: str) -> Rounds:
        """The answer is the newest that was given."""
        seen = yield Round((Ask(),))
        for _ in range(self.revisions):
            seen = yield Round((revising(question, seen[-1]),), newest(seen))
        return newest(seen)

    @property
    def most(self) -> tuple[int, int]:
        return 1, self.revisions


def revising(question: str, last: Candidate) -> Ask:
    text = (
        f"{question}\n\nAn earlier attempt:\n{last.words}\n\nIts answer: {last.answer or 'none'}\n\nCheck the attempt,"
        " mend what is wrong in it, and solve the problem."
    )
    return Ask(operator="revise", question=text, parents=(last.name,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refine(Method):
    """Self-refine (Madaan et al. 2023, arXiv 2303.17651): attempt, critique, an attempt that heeds it.

    refinements: at most, each after a critique.
    """

    refinements: AtLeastOne = 2

    def rounds(self, question: str) -> Rounds:
        """The answer is the newest that was given."""
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
        f"{question}\n\nAn attempt at it:\n{attempt.words}\n\nIts answer: {attempt.answer or 'none'}\n\nDo not"
        " solve the problem: name the first mistake of the attempt, or say that there is none."
    )
    return Ask(operator="criticise", question=text, parents=(attempt.name,), answers=False)


def refining(question: str, attempt: Candidate, critique: Candidate) -> Ask:
    text = (
        f"{question}\n\nAn attempt at it:\n{attempt.words}\n\nA critique of the attempt:\n{critique.words}\n\nSolve the"
        " problem, and heed what of the critique is right."
    )
    return Ask(operator="refine", question=text, parents=(attempt.name, critique.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelOfTraces(Method):
    """Panel of traces: several attempts are summarised, and the problem is solved with the summary at hand.

    width: attempts that are summarised.
    """

    width: AtLeastTwo = 4

    def rounds(self, question: str) -> Rounds:
        """The answer after the summary; where it gives none, the attempts' majority."""
        seen = yield Round(tuple(Ask(index=index) for index in range(self.width)))
        attempts = drawn(seen)
        seen = yield Round((summarising(question, attempts),), most_voted(seen))
        seen = yield Round((concluding(question, seen[-1]),), most_voted(attempts))
        return seen[-1] if seen[-1].answer is not None else most_voted(drawn(seen))

    @property
    def most(self) -> tuple[int, int]:
        return self.width, 2


def listed(attempts: Sequence[Candidate]) -> str:
    return "\n\n".join(
        f"Attempt {place}:\n{c.words}\nIts answer: {c.answer or 'none'}" for place, c in enumerate(attempts, start=1)
    )


def summarising(question: str, attempts: Sequence[Candidate]) -> Ask:
    text = (
        f"{question}\n\n{listed(attempts)}\n\nDo not solve the problem: say in a few lines where the attempts agree,"
        " where they differ, and which of their steps are right."
    )
    return Ask(operator="summarise", question=text, parents=tuple(c.name for c in attempts), answers=False)


def concluding(question: str, summary: Candidate) -> Ask:
    text = f"{question}\n\nWhat several attempts found:\n{summary.words}\n\nSolve the problem."
    return Ask(operator="conclude", question=text, parents=(summary.name,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Debate(Method):
    """Debate (Du et al. 2023, arXiv 2305.14325): several agents solve the problem, read one another, and solve it
    again.

    agents: who answer in every round. turns: rounds after the first.
    """

    agents: AtLeastTwo = 3
    turns: AtLeastOne = 2

    def rounds(self, question: str) -> Rounds:
        """The answer that most agents gave in the newest round; where none did, in the last that had one."""
        seen = yield Round(tuple(Ask(index=index) for index in range(self.agents)))
        last, best = list(seen), most_voted(seen)
        for turn in range(1, self.turns + 1):
            before = len(seen)
            seen = yield Round(tuple(replying(question, last, agent, turn) for agent in range(len(last))), best)
            last = list(seen[before:])
            best = most_voted(last) or best
        return best

    @property
    def most(self) -> tuple[int, int]:
        return self.agents, self.agents * self.turns


def replying(question: str, last: Sequence[Candidate], agent: int, turn: int) -> Ask:
    """One agent's next turn: it sees its own attempt first, then the others'."""
    order = [last[agent], *(c for place, c in enumerate(last) if place != agent)]
    text = (
        f"{question}\n\n{listed(order)}\n\nThe first attempt is yours, the others are your colleagues'. Weigh what they"
        " say, and solve the problem."
    )
    return Ask(operator="debate", question=text, parents=tuple(c.name for c in order), round=turn)


#: Fitness besides its own that every attempt has: one that nothing agrees with may be a parent too.
LEAST = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution(Method):
    """Evolutionary search after Mind Evolution (Lee et al. 2025, arXiv 2501.09891): islands of attempts, parents drawn
    by their fitness, children that the policy makes of two parents, migration, reset of the worst island.

    The fitness there needs an evaluator of solutions. Here it is what is known without the gold: the share of all
    attempts seen so far that gave the same answer. Parents are drawn in proportion to it, there by its softmax, which
    among shares is nearly a fair draw; they are two different attempts, there none to five; a child is one completion,
    there turns of a critic and an author.

    islands of `population` attempts each. generations: after the first. reset_every: generations after which the
    island of the least mean fitness takes the fittest attempts of the others.
    """

    islands: AtLeastOne = 2
    population: AtLeastTwo = 4
    generations: AtLeastOne = 2
    reset_every: AtLeastOne = 2

    def rounds(self, question: str) -> Rounds:
        """The answer of the fittest attempt, which most attempts gave."""
        size = self.islands * self.population
        seen = yield Round(tuple(Ask(index=index) for index in range(size)))
        islands = [list(seen[start : start + self.population]) for start in range(0, len(seen), self.population)]
        for generation in range(1, self.generations + 1):
            fitness = agreement(seen)
            islands = migrated(islands, fitness)
            if generation % self.reset_every == 0:
                islands = with_reset(islands, fitness)
            asks = [
                crossing(question, parents(island, fitness, (generation, i, j)), generation, i * self.population + j)
                for i, island in enumerate(islands)
                for j in range(self.population)
            ]
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
    """Candidate → the share of all that was answered which agrees with it; 0 without an answer."""
    counted, whole = votes(seen), max(len(answered(seen)), 1)
    return {c.name: counted.get(c.answer or "", 0.0) / whole if c.answer is not None else 0.0 for c in seen}


def parents(
    island: Sequence[Candidate], fitness: dict[str, float], place: tuple[int, int, int]
) -> tuple[Candidate, ...]:
    """Two of an island, one after the other in proportion to their fitness and never one twice, or the only one that it
    has: a function of who they are and of the child's place."""
    rng = random.Random(derived_seed([c.name for c in island], list(place)))
    left, pair = {c.name: c for c in island}, list[Candidate]()
    while left and len(pair) < 2:
        [name] = rng.choices(list(left), [fitness[name] + LEAST for name in left])
        pair.append(left.pop(name))
    return tuple(pair)


def migrated(islands: Sequence[list[Candidate]], fitness: dict[str, float]) -> list[list[Candidate]]:
    """The fittest of every island joins the next one too."""
    best = [max(island, key=lambda c: fitness[c.name]) for island in islands]
    if len(islands) < 2:
        return [list(island) for island in islands]
    return [[*island, best[place - 1]] for place, island in enumerate(islands)]


def with_reset(islands: Sequence[list[Candidate]], fitness: dict[str, float]) -> list[list[Candidate]]:
    """The worst island made anew of the fittest of all."""
    if len(islands) < 2:
        return [list(island) for island in islands]
    means = [sum(fitness[c.name] for c in island) / len(island) for island in islands]
    worst = means.index(min(means))
    everybody = {c.name: c for island in islands for c in island}.values()
    fittest = sorted(everybody, key=lambda c: -fitness[c.name])[: len(islands[worst])]
    return [fittest if place == worst else list(island) for place, island in enumerate(islands)]


def crossing(question: str, pair: Sequence[Candidate], generation: int, index: int) -> Ask:
    text = (
        f"{question}\n\n{listed(pair)}\n\nFind what is right and what is wrong in each, join what is right, and"
        " solve the problem."
    )
    return Ask(operator="cross", question=text, parents=tuple(c.name for c in pair), round=generation, index=index)
