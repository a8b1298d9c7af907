"""What a search method is: a generator of rounds. It yields what it wants sampled, receives what came, and ends with
the candidate whose answer it gives.

A method is pure: what it asks for is a function of the question, its parameters and the candidates that it has seen. A
candidate carries no verdict, so no method can see the gold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from storage.artifacts.fingerprint import fingerprint
from tasks.domain.ranges import Checked

#: What the ledger files later rounds under begins so; problems of a pool do not.
PREFIX = "search-"
#: Scores are self-certainties, which no reward model is needed for.
CERTAINTY = "certainty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One completion that a method wants.

    question: asked in the place of the problem; null: the problem itself. operator: what makes the question out of its
    parents, the candidates whose words it holds. round: told apart where the same parents are asked alike again.
    index: which draw of this question. answers: whether the completion answers the problem; a critique does not.
    end: what a step ends with; it is one step of an answer, and goes on where that of its one parent stopped.
    """

    index: int = 0
    operator: str = "draw"
    question: str | None = None
    parents: tuple[str, ...] = ()
    round: int = 0
    answers: bool = True
    end: str = ""

    def context(self, problem_id: str) -> str:
        """What the ledger knows the question by: its content, so that ledger, seeds and reuse hold for later rounds as
        for plain rollouts, and two methods that ask alike pay once.

        >>> Ask(index=3).context("p")
        'p'
        >>> one, other = (Ask(operator="revise", question="…", parents=(name,)).context("p") for name in ("p/0", "p/1"))
        >>> one.startswith(PREFIX), one == other
        (True, False)
        """
        if self.question is None and not self.end:
            return problem_id
        return PREFIX + fingerprint([problem_id, self.operator, self.round, list(self.parents), self.question])


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A completion as a method sees it. name: `context/index`. answer: the first that was given of those that equal it
    in this search; None without one. trace: None where the scaffold's form is missing.

    Of a step it is the whole path to its end: words, tokens and log-probs. ended: nothing follows on it. scores: of a
    reward model, one a step, else one, in [0, 1], none where it cannot read so much; or the self-certainty.
    """

    name: str
    ask: Ask
    completion: str
    trace: str | None
    answer: str | None
    finish: str
    num_tokens: int
    logprob_sum: float | None
    ended: bool = True
    scores: tuple[float, ...] = ()

    @property
    def likelihood(self) -> float:
        """Mean log-prob of its tokens; -inf where the engine could not tell."""
        return float("-inf") if self.logprob_sum is None else self.logprob_sum / max(self.num_tokens, 1)

    @property
    def words(self) -> str:
        """What another question may hold of it."""
        return (self.trace or self.completion).strip()


def asking(operator: str, question: str, parents: Sequence[Candidate], text: str, **more: Any) -> Ask:
    """Ask the problem with a text after it that holds words of the parents."""
    return Ask(operator=operator, question=f"{question}\n\n{text}", parents=tuple(c.name for c in parents), **more)


@dataclass(frozen=True, slots=True)
class Round:
    """What is wanted next, and whose answer would be given if nothing more came."""

    asks: tuple[Ask, ...]
    answer: Candidate | None = None


#: It is sent everything that came in this search so far, in the order of asking: what a budget or the model's context
#: has cut is not there, and a round of which nothing came is the last.
Rounds = Generator[Round, Sequence[Candidate], Candidate | None]


class Method(Checked, ABC):
    """Base of the methods: frozen dataclasses whose fields are their parameters, and so part of a result's name."""

    __slots__ = ()

    @abstractmethod
    def rounds(self, question: str) -> Rounds: ...

    @property
    def sure(self) -> int:
        """Rollouts of the problem itself that are asked for whatever comes back: they may be sampled ahead."""
        return 0

    @property
    @abstractmethod
    def most(self) -> tuple[int, int]:
        """At most so many rollouts of the problem itself, and of questions that hold earlier ones: what `plan`
        prices."""

    @property
    def in_steps(self) -> bool:
        """Whether it asks for answers step by step, which not every scaffold has."""
        return False

    @property
    def reward(self) -> str:
        """What scores what it asked for: a reward model, `process` or `outcome`, or the policy's own distributions,
        CERTAINTY; empty for a method that needs no score."""
        return ""


def answered(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that answer the problem."""
    return [c for c in candidates if c.ask.answers and c.answer is not None]


def drawn(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Rollouts of the problem itself."""
    return [c for c in candidates if c.ask.question is None and not c.ask.end]
