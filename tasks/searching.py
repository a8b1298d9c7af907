"""Searches of many problems driven together: the rounds of all that go on are cut into batches in the order in which
they were asked for, so that no problem waits for another one's last round.

A batch is what was asked for, whatever the ledger has of it: a search that was killed meets the same batches again, and
what they held is reused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from storage.artifacts.fingerprint import derived_seed
from tasks.answer_classes import by_grader
from tasks.domain.partitions.by_answer import same_answers
from tasks.domain.policies import Policy, Sampling, ServedAdapter
from tasks.domain.search.method import Ask, Candidate, Method, Round
from tasks.engines.grading.graders import GradeItem
from tasks.engines.sampling.sampler import RolloutRequest, SamplingStats
from tasks.rollouts import account_of, ensure_rollouts, entered
from tasks.stage import ledger, progress, toolbox

#: Where sampling streams, so many times what an engine runs at once are asked of it together.
AT_ONCE = 4
Key = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a search is carried out. tokens: of prompts and completions, after which a problem's search starts no round.
    context: tokens that a prompt and its completion may have together."""

    policy: Policy
    sampling: Sampling
    tokens: int
    context: int
    adapter: ServedAdapter | None = None
    lora_rank: int = 0


@dataclass(slots=True)
class Tree:
    """The search of one problem while it goes on. problem: its row of a pool. hand: what was sampled for it or read, by
    context and index; a text says why a request was cut."""

    problem: dict[str, Any]
    method: Method
    terms: Terms
    hand: dict[Key, dict[str, Any] | str] = field(default_factory=dict)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    seen: list[Candidate] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)
    spent: int = 0
    round: int = 0
    ended: bool = False

    def __post_init__(self) -> None:
        self._rounds = self.method.rounds(self.problem["problem"])
        self._asked = self._next(None)

    _rounds: Any = field(init=False)
    _asked: Round = field(init=False)

    def key(self, ask: Ask) -> Key:
        return ask.context(self.problem["problem_id"]), ask.index

    def lacking(self) -> dict[Key, Ask]:
        """What the next round needs and is not in hand, and rollouts that are sure to be asked for later, as many again
        as were drawn: rounds of one rollout each are sampled in twos, fours and eights."""
        wanted = list(self._asked.asks)
        for ask in self._asked.asks:
            if ask.question is None and self.key(ask) not in self.hand:
                ahead = range(ask.index + 1, min(2 * ask.index + 1, self.method.sure))
                wanted += [replace(ask, index=index) for index in ahead]
        return {self.key(ask): ask for ask in wanted if self.key(ask) not in self.hand}

    def go_on(self) -> None:
        """Hand over every round that is complete, until one is not or the search has ended."""
        while not self.ended and all(self.key(ask) in self.hand for ask in self._asked.asks):
            came = self._take()
            self.round += 1
            if not came:
                self._end(self._asked.answer)
                continue
            texts = sorted({c.answer for c in self.seen if c.answer is not None})
            if any(text not in self.told for text in texts):
                self._tell_apart(texts)
            given = [c if c.answer is None else replace(c, answer=self.told[c.answer]) for c in self.seen]
            asked = self._next(given)
            for node in self.nodes:
                if node["round"] == self.round - 1:
                    self._choose(node, asked.answer)
            if not self.ended and self.spent >= self.terms.tokens:
                self._end(asked.answer)
            self._asked = asked

    def _next(self, given: Sequence[Candidate] | None) -> Round:
        try:
            return self._rounds.send(given)
        except StopIteration as stopped:
            self.ended = True
            return Round((), stopped.value)

    def _end(self, answer: Candidate | None) -> None:
        self._rounds.close()
        self.ended = True
        for node in self.nodes:
            if node["round"] == self.round - 1:
                self._choose(node, answer)

    def _choose(self, node: dict[str, Any], answer: Candidate | None) -> None:
        row = None if answer is None else self.hand[self.key(answer.ask)]
        node["chosen"] = None if answer is None else answer.name
        node["chosen_answer"] = None if answer is None else answer.answer
        node["chosen_correct"] = isinstance(row, dict) and row["correct"]

    def _take(self) -> bool:
        """Put the round's candidates to those that were seen. False if all of it was cut."""
        came = False
        for ask in self._asked.asks:
            context, index = self.key(ask)
            row, name = self.hand[context, index], f"{context}/{index}"
            if any(node["node"] == name for node in self.nodes):  # asked for again: it is there, and paid for
                came = True
                continue
            node = {
                "round": self.round,
                "node": name,
                "operator": ask.operator,
                "parents": " ".join(ask.parents),
                "question": ask.question,
                "cut": row if isinstance(row, str) else None,
            }
            if isinstance(row, str):
                self.nodes.append(node | NOTHING)
                continue
            came = True
            self.spent += row["num_prompt_tokens"] + row["num_tokens"]
            read = {column: row[column] for column in NOTHING}
            self.nodes.append(node | read | {"correct": ask.answers and row["correct"]})
            self.seen.append(Candidate(name=name, ask=ask, **{column: row[column] for column in SEEN}))
        return came

    def _tell_apart(self, texts: Sequence[str]) -> None:
        """Classes of the answers that this search has seen, never of those that another has: named by the one that was
        given first."""
        merged = {text: first for _, text, first in same_answers({"": texts}, by_grader(toolbox().graders()))}
        first: dict[str, str] = {}
        for c in self.seen:
            if c.answer is not None:
                first.setdefault(merged.get(c.answer, c.answer), c.answer)
        self.told = {text: first[merged.get(text, text)] for text in texts}


#: What a method sees of a row.
SEEN = ("completion", "trace", "answer", "finish", "num_tokens", "logprob_sum")
#: Of a node that was cut.
NOTHING: dict[str, Any] = dict.fromkeys(SEEN) | {"correct": False, "num_prompt_tokens": 0, "num_tokens": 0}


def search(problems: Sequence[dict[str, Any]], method: Method, terms: Terms) -> tuple[list[Tree], SamplingStats]:
    """Every problem's search, to its end."""
    trees = [Tree(problem, method, terms) for problem in problems]
    queue, total = deque(trees), SamplingStats()
    size = toolbox().batch_size or AT_ONCE * toolbox().hardware.max_num_seqs
    while queue:
        batch: list[tuple[Tree, Ask]] = []
        turn: list[Tree] = []
        while queue and len(batch) < size:
            tree = queue.popleft()
            batch += [(tree, ask) for ask in tree.lacking().values()][: size - len(batch)]
            turn.append(tree)
        _serve(batch, terms, total)
        for tree in turn:
            tree.go_on()
        begun = [tree for tree in turn if not tree.ended]
        queue.extend(begun)
        ended = sum(tree.ended for tree in trees)
        progress(ended, len(trees), "problems", f"round {max((t.round for t in begun), default=0)}")
    return trees, total


def _serve(batch: Sequence[tuple[Tree, Ask]], terms: Terms, total: SamplingStats) -> None:
    """Sample what of a batch the ledger lacks, and put all of it into the trees' hands, read without any gold."""
    had = ledger().keys(account_of(terms.policy, terms.sampling))
    asked: list[tuple[Tree, Ask, RolloutRequest]] = []
    for tree, ask in batch:
        request = _request(tree.problem, ask, terms)
        key = (request.problem_id, request.rollout)
        if key not in had and (cut := _cut(request, terms)):
            tree.hand[key] = cut
        else:
            asked.append((tree, ask, request))
    requests = [request for _, _, request in asked]
    if not requests:
        return
    stats = ensure_rollouts(requests, terms.adapter, terms.policy.model, terms.lora_rank)
    total.rollouts += stats.rollouts
    total.tokens += stats.tokens
    total.seconds += stats.seconds
    total.grading_seconds += stats.grading_seconds
    rows = entered(requests).select([*NOTHING]).to_pylist()
    scaffold = terms.policy.scaffold
    read = toolbox().graders().grade([GradeItem(scaffold, row["completion"], "", row["finish"]) for row in rows])
    for (tree, _, request), row, seen in zip(asked, rows, read, strict=True):
        cut = _too_long(row["num_prompt_tokens"], terms)  # of a rollout that was paid for under a longer context
        tree.hand[request.problem_id, request.rollout] = cut or row | {"answer": seen.canonical}


def _request(problem: dict[str, Any], ask: Ask, terms: Terms) -> RolloutRequest:
    """What answers the problem is graded as any rollout of it; nothing else has a gold."""
    context = ask.context(problem["problem_id"])
    return RolloutRequest(
        context,
        problem["source"],
        problem["problem"] if ask.question is None else ask.question,
        problem["gold"] if ask.answers else "",
        ask.index,
        terms.policy,
        terms.sampling,
        derived_seed(terms.sampling.seed, context, ask.index),
    )


def _cut(request: RolloutRequest, terms: Terms) -> str:
    """Why a request cannot be sampled; empty if it can."""
    scaffold = terms.policy.scaffold
    generator = toolbox().generator(terms.policy.model.sha256, terms.lora_rank)
    prompt = scaffold.prompt(request.problem)
    ids = generator.encode(prompt, chat=scaffold.chat, enable_thinking=scaffold.enable_thinking)
    return _too_long(len(ids), terms)


def _too_long(length: int, terms: Terms) -> str:
    if length + terms.sampling.max_tokens <= terms.context:
        return ""
    return (
        f"a prompt of {length} tokens and max_tokens={terms.sampling.max_tokens} do not fit the context of"
        f" {terms.context}"
    )
