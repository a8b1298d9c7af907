"""The running search of one problem: rounds in, candidates out, one node per completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tasks.domain.partitions.classes import same_answers
from tasks.domain.policies import BaseModel, Policy, Sampling, ServedAdapter
from tasks.domain.scaffolds import MATH
from tasks.domain.search.method import Ask, Candidate, Method, Round, answered
from tasks.grading import by_grader
from tasks.stage import toolbox

Key = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Settings of a search. tokens: budget of prompts and completions per problem; no round starts above it. context:
    limit of a prompt with its completion. reward: the scoring model, if the method needs one."""

    policy: Policy
    sampling: Sampling
    tokens: int
    context: int
    adapter: ServedAdapter | None = None
    lora_rank: int = 0
    reward: BaseModel | None = None


@dataclass(frozen=True, slots=True)
class Came:
    """The result of a request. node: its columns. seen: the fields that a method sees; for a step, of the whole path to
    its end."""

    node: Mapping[str, Any]
    seen: Mapping[str, Any]


#: Columns that a method sees.
SEEN = ("completion", "trace", "answer", "finish", "num_tokens", "logprob_sum")
#: Values of a cut node.
NOTHING: dict[str, Any] = dict.fromkeys(("completion", "answer", "finish", "logprob_sum", "score")) | {
    "correct": False,
    "num_prompt_tokens": 0,
    "num_tokens": 0,
    "num_scored_tokens": 0,
}


def tokens_of(node: Mapping[str, Any]) -> int:
    """Return the cost of a node: prompt, completion, and tokens read by a reward model."""
    return node["num_prompt_tokens"] + node["num_tokens"] + node["num_scored_tokens"]


@dataclass(slots=True)
class Tree:
    """The search of one problem. problem: its row of a pool. hand: results by context and index; a text is the reason
    of a cut request."""

    problem: dict[str, Any]
    method: Method
    terms: Terms
    hand: dict[Key, Came | str] = field(default_factory=dict)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    seen: list[Candidate] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)
    spent: int = 0
    round: int = 0
    ended: bool = False
    _rounds: Any = field(init=False)
    _asked: Round = field(init=False)

    def __post_init__(self) -> None:
        self._rounds = self.method.rounds(self.problem["problem"])
        self._asked = self._next(None)

    def key(self, ask: Ask) -> Key:
        return ask.context(self.problem["problem_id"]), ask.index

    def parent(self, ask: Ask) -> Came | None:
        """Return the result that a step continues."""
        if not ask.end or not ask.parents:
            return None
        context, _, index = ask.parents[0].rpartition("/")
        came = self.hand[context, int(index)]
        assert isinstance(came, Came)
        return came

    def lacking(self) -> dict[Key, Ask]:
        """Return missing requests of the next round, and requests that will certainly follow, as many again as exist:
        rounds of single rollouts are thus sampled in twos, fours and eights."""
        wanted = list(self._asked.asks)
        for ask in self._asked.asks:
            if ask.question is None and not ask.end and self.key(ask) not in self.hand:
                ahead = range(ask.index + 1, min(2 * ask.index + 1, self.method.sure))
                wanted += [replace(ask, index=index) for index in ahead]
        return {self.key(ask): ask for ask in wanted if self.key(ask) not in self.hand}

    def go_on(self) -> None:
        """Process complete rounds, until one is incomplete or the search has ended."""
        while not self.ended and all(self.key(ask) in self.hand for ask in self._asked.asks):
            came = self._take()
            if came:
                self._tell_apart()
                self._asked = self._next([self._called(c) for c in self.seen])
            if not came or self.spent >= self.terms.tokens:
                self._rounds.close()
                self.ended = True
            self._choose(self._asked.answer)
            self.round += 1

    def _next(self, given: Sequence[Candidate] | None) -> Round:
        try:
            return self._rounds.send(given)
        except StopIteration as stopped:
            self.ended = True
            return Round((), stopped.value)

    def _choose(self, answer: Candidate | None) -> None:
        """Record with the round's nodes the answer after it."""
        came = None if answer is None else self.hand[self.key(answer.ask)]
        chosen = {
            "chosen": None if answer is None else answer.name,
            "chosen_answer": None if answer is None else answer.answer,
            "chosen_correct": isinstance(came, Came) and came.node["correct"],
        }
        for node in self.nodes:
            if node["round"] == self.round:
                node |= chosen

    def _take(self) -> bool:
        """Add the round's candidates to those seen. Return False if all were cut."""
        some = False
        for ask in self._asked.asks:
            context, index = self.key(ask)
            came, name = self.hand[context, index], f"{context}/{index}"
            some |= isinstance(came, Came)
            if any(node["node"] == name for node in self.nodes):  # a repeated request, paid already
                some = True
                continue
            node = {"round": self.round, "node": name, "operator": ask.operator, "parents": " ".join(ask.parents)}
            node |= {"question": ask.question, "cut": came if isinstance(came, str) else None}
            self.nodes.append(node | (NOTHING if isinstance(came, str) else dict(came.node)))
            if not isinstance(came, str):
                self.spent += tokens_of(came.node)
                self.seen.append(Candidate(name=name, ask=ask, **came.seen))
        return some

    def _called(self, candidate: Candidate) -> Candidate:
        """Replace a candidate's answer by its class, if it answers the problem: a score of 0.5 is not the answer
        1/2."""
        if not answered([candidate]):
            return candidate
        return replace(candidate, answer=self.told[candidate.answer or ""])

    def _tell_apart(self) -> None:
        """Update the classes of this search's answers, named by the first answer of each class."""
        given = [c.answer or "" for c in answered(self.seen)]
        texts, kind = sorted({*given}), self.terms.policy.scaffold.answer_kind
        if self.told.keys() >= {*texts}:
            return
        told = same_answers({"": texts}, by_grader(toolbox().graders(), kind), by_value=kind == MATH)
        merged = {text: text for text in texts} | {text: first for _, text, first in told}
        first: dict[str, str] = {}
        for answer in given:
            first.setdefault(merged[answer], answer)
        self.told = {text: first[merged[text]] for text in texts}
