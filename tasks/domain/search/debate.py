"""Debate (Du et al. 2023, arXiv 2305.14325): several agents solve the problem, read one another, and solve it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.search.majority import most_voted
from tasks.domain.search.method import Ask, Candidate, Method, Round, Rounds
from tasks.domain.search.panel_of_traces import listed
from tasks.domain.search.widths import AtLeastOne, AtLeastTwo


@dataclass(frozen=True, slots=True, kw_only=True)
class Debate(Method):
    """agents: who answer in every round. turns: rounds after the first."""

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
