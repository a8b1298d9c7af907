"""The interface of search methods. A method is a generator of rounds: it yields requests, receives candidates, and
names the candidate that gives its answer.

Requests depend only on the question, the method's parameters and the candidates so far. Candidates have no verdict.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from storage.artifacts.fingerprint import fingerprint
from tasks.domain.ranges import Checked

#: Prefix of the ledger's problem ids in later rounds. No problem id of a pool starts with it.
PREFIX = "search-"
#: Name of scores that are self-certainties, which need no reward model.
CERTAINTY = "certainty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request for one completion.

    question: the prompt; None for the problem itself. operator: the way in which the question was made from `parents`,
    the candidates that it quotes. round: distinguishes repeated requests with the same parents. index: number of the
    rollout of this question. answers: whether the completion answers the problem, which a critique does not. end: the
    text that ends a step; the request then adds one step to the path of its parent.
    """

    index: int = 0
    operator: str = "draw"
    question: str | None = None
    parents: tuple[str, ...] = ()
    round: int = 0
    answers: bool = True
    end: str = ""

    def context(self, problem_id: str) -> str:
        """Return the ledger's problem id for this question, a hash of its content.

        So ledger, seeds and reuse work in later rounds as they do for rollouts of problems. Equal requests are paid
        once.

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
    """A completion without its verdict, as methods see it.

    name: `context/index`. answer: the first equal answer in this search, or None. trace: the trace, or None if the
    scaffold's form is missing. In a step search, trace, words, tokens and log-probs are those of the whole path up to
    this step. ended: no step follows. scores: in [0, 1]; the self-certainty, or the scores of a reward model (one per
    step, or one for all; none if the text is too long for it).
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
        """Return the mean log-prob per token; -inf if unknown."""
        return float("-inf") if self.logprob_sum is None else self.logprob_sum / max(self.num_tokens, 1)

    @property
    def words(self) -> str:
        """Return the text that later prompts may quote."""
        return (self.trace or self.completion).strip()


def asking(operator: str, question: str, parents: Sequence[Candidate], text: str, **more: Any) -> Ask:
    """Return a request for the problem followed by a text that quotes the parents."""
    return Ask(operator=operator, question=f"{question}\n\n{text}", parents=tuple(c.name for c in parents), **more)


@dataclass(frozen=True, slots=True)
class Round:
    """The next requests of a method, and the candidate that is its answer if the search ends here."""

    asks: tuple[Ask, ...]
    answer: Candidate | None = None


#: A generator of rounds. It is sent all candidates of the search so far, in the order of requests. Candidates beyond
#: the budget or the model's context are missing. A round that brings no candidate is the last one.
Rounds = Generator[Round, Sequence[Candidate], Candidate | None]


class Method(Checked, ABC):
    """Base of search methods: frozen dataclasses, whose fields are the method's parameters and enter fingerprints."""

    __slots__ = ()
    #: Whether the method requests answers step by step. Not every scaffold supports that.
    in_steps: ClassVar[bool] = False

    @abstractmethod
    def rounds(self, question: str) -> Rounds: ...

    @property
    def sure(self) -> int:
        """Return the number of rollouts that the method requests in any case, so that they can be sampled early."""
        return 0

    @property
    @abstractmethod
    def most(self) -> tuple[int, int]:
        """Return upper bounds for `plan`: (rollouts of the problem itself, rollouts of questions with quotes)."""

    @property
    def reward(self) -> str:
        """Return the source of scores: a reward model (`process` or `outcome`), CERTAINTY, or empty."""
        return ""


def answered(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that answer the problem."""
    return [c for c in candidates if c.ask.answers and c.answer is not None]


def direct_rollouts(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the rollouts of the problem itself."""
    return [c for c in candidates if c.ask.question is None and not c.ask.end]
