"""The interface of search methods: a method is a generator of rounds. It yields requests, receives candidates, and
names the candidate that gives its answer.

A method is pure: its requests are a function of the question, its parameters and the candidates so far. Candidates have
no verdict, so no method can see the gold.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from storage.artifacts.fingerprint import fingerprint
from tasks.domain.ranges import Checked

#: Prefix of the ledger's problem ids for later rounds; ids of a pool do not start with it.
PREFIX = "search-"
#: Scores are self-certainties, computed without a reward model.
CERTAINTY = "certainty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request for one completion.

    question: prompt instead of the problem; None: the problem itself. operator: how the question was made from
    `parents`, the candidates that it quotes. round: distinguishes repeated requests with the same parents. index:
    number of the rollout of this question. answers: whether the completion answers the problem; a critique does not.
    end: the text that ends a step; the request then continues the path of its parent by one step.
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

        Ledger, seeds and reuse thus work for later rounds as for plain rollouts; equal requests of two methods are paid
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
    """A completion as a method sees it.

    name: `context/index`. answer: the first equal answer in this search, or None. trace: None if the scaffold's form is
    missing. For a step: the whole path to its end, with its words, tokens and log-probs. ended: no step follows.
    scores: in [0, 1], of a reward model (one per step, or one; none if the text is too long for it), or the
    self-certainty.
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
    """Request the problem followed by a text that quotes the parents."""
    return Ask(operator=operator, question=f"{question}\n\n{text}", parents=tuple(c.name for c in parents), **more)


@dataclass(frozen=True, slots=True)
class Round:
    """The next requests, and the candidate that answers if the search ends here."""

    asks: tuple[Ask, ...]
    answer: Candidate | None = None


#: The generator is sent all candidates of this search so far, in the order of requests, without those cut by the budget
#: or the model's context. A round without any candidate is the last.
Rounds = Generator[Round, Sequence[Candidate], Candidate | None]


class Method(Checked, ABC):
    """Base of the methods: frozen dataclasses whose fields are their parameters and enter fingerprints."""

    __slots__ = ()
    #: Whether the method requests answers step by step, which not every scaffold supports.
    in_steps: ClassVar[bool] = False

    @abstractmethod
    def rounds(self, question: str) -> Rounds: ...

    @property
    def sure(self) -> int:
        """Return the number of rollouts that the method always requests; they may be sampled in advance."""
        return 0

    @property
    @abstractmethod
    def most(self) -> tuple[int, int]:
        """Upper bounds for `plan`: rollouts of the problem itself, and of questions that quote earlier ones."""

    @property
    def reward(self) -> str:
        """The scorer: a reward model (`process` or `outcome`), the policy's own distributions (CERTAINTY), or empty."""
        return ""


def answered(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that answer the problem."""
    return [c for c in candidates if c.ask.answers and c.answer is not None]


def direct_rollouts(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the rollouts of the problem itself."""
    return [c for c in candidates if c.ask.question is None and not c.ask.end]
