"""Test-time search: problems × policy × method → one tree per problem, with the answer after each round.

All problems are searched at the same time, so that none waits for another's last round. If sampling is in batches, the
rounds of all unfinished searches are divided into batches in the order of their requests. Batches do not depend on the
ledger, so a search that was killed repeats them and reuses their rollouts. If sampling streams, the next round of a
problem starts as soon as the last rollout of its round is finished.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pyarrow as pa

from storage.artifacts.fingerprint import derived_seed
from storage.artifacts.schemas import Benchmark, Pool, Searches, Splits, Training
from storage.errors import UserError
from storage.ledger import LEDGER
from tasks.domain.partitions import same_answers
from tasks.domain.policies import BaseModel, Policy, Sampling, ServedAdapter
from tasks.domain.problems.problems import of_split
from tasks.domain.scaffolds import MATH
from tasks.domain.search.method import CERTAINTY, Ask, Candidate, Method, Round, answered
from tasks.engines.grading.graders import GradeItem
from tasks.engines.rewarding import DIGITS, Reading
from tasks.engines.sampling.prompts import prompt_length, unfitting
from tasks.engines.sampling.sampler import RolloutRequest, SamplingStats
from tasks.grading import by_grader
from tasks.metering import at_work_here
from tasks.rollouts import account_of, as_read_by, ensure_rollouts, entered, served, weights_left
from tasks.stage import Payload, ledger, progress, stage, store, toolbox

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Terms:
    """Settings of a search. tokens: budget of prompts and completions per problem; beyond it no round starts. context:
    largest number of tokens of a prompt with its completion. reward: the scoring model, if the method needs one."""

    policy: Policy
    sampling: Sampling
    tokens: int
    context: int
    adapter: ServedAdapter | None = None
    lora_rank: int = 0
    reward: BaseModel | None = None


@dataclass(frozen=True, slots=True)
class Came:
    """The result of a request. node: its columns. seen: the candidate for the method; for a step, the whole path."""

    node: Mapping[str, Any]
    seen: Mapping[str, Any]


#: Columns that methods see.
SEEN = ("completion", "trace", "answer", "finish", "num_tokens", "logprob_sum")
#: Values of a node that was not sampled.
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
    """The search of one problem. problem: a row of a pool. hand: result of each request, or why none, by key."""

    problem: dict[str, Any]
    method: Method
    terms: Terms
    hand: dict[Key, Came | str] = field(default_factory=dict)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    seen: list[Candidate] = field(default_factory=list)
    canonical: dict[str, str] = field(default_factory=dict)
    spent: int = 0
    round: int = 0
    ended: bool = False
    _rounds: Any = field(init=False)
    _requested: Round = field(init=False)

    def __post_init__(self) -> None:
        self._rounds = self.method.rounds(self.problem["problem"])
        self._requested = self._next(None)

    def key(self, ask: Ask) -> Key:
        return ask.context(self.problem["problem_id"]), ask.index

    def parent(self, ask: Ask) -> Came | None:
        if not ask.end or not ask.parents:
            return None
        context, _, index = ask.parents[0].rpartition("/")
        came = self.hand[context, int(index)]
        assert isinstance(came, Came)
        return came

    def request(self, ask: Ask) -> RolloutRequest:
        """Return the rollout request of an Ask. A request for an answer has the problem's gold; a request for one step
        has none. The steps of a path share the tokens of one completion, and each gets what its parent left."""
        problem, (context, index), parent = self.problem, self.key(ask), self.parent(ask)
        policy, sampling = self.terms.policy, self.terms.sampling
        return RolloutRequest(
            context,
            problem["source"],
            problem["problem"] if ask.question is None else ask.question,
            problem["gold"] if ask.answers and not ask.end else "",
            index,
            stepping(policy, ask.end) if ask.end else policy,
            sampling,
            derived_seed(sampling.seed, context, index),
            begun="" if parent is None else parent.seen["completion"],
            left=None if parent is None else sampling.max_tokens - parent.seen["num_tokens"],
        )

    def lacking(self) -> dict[Key, Ask]:
        """Return the missing requests of the next round. In advance, add as many certain later requests as there are
        results, so that rounds of single rollouts are sampled in batches of two, four and eight."""
        wanted = list(self._requested.asks)
        for ask in self._requested.asks:
            if ask.question is None and not ask.end and self.key(ask) not in self.hand:
                ahead = range(ask.index + 1, min(2 * ask.index + 1, self.method.sure))
                wanted += [replace(ask, index=index) for index in ahead]
        return {self.key(ask): ask for ask in wanted if self.key(ask) not in self.hand}

    def advance(self) -> None:
        """Process complete rounds until a round is incomplete or the search has ended."""
        while not self.ended and all(self.key(ask) in self.hand for ask in self._requested.asks):
            came = self._take()
            if came:
                self._update_classes()
                self._requested = self._next([self._called(c) for c in self.seen])
            if not came or self.spent >= self.terms.tokens:
                self._rounds.close()
                self.ended = True
            self._choose(self._requested.answer)
            self.round += 1

    def _next(self, given: Sequence[Candidate] | None) -> Round:
        try:
            return self._rounds.send(given)
        except StopIteration as stopped:
            self.ended = True
            return Round((), stopped.value)

    def _choose(self, answer: Candidate | None) -> None:
        """Store the search's answer after a round in the nodes of the round."""
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
        """Add the round's candidates to those seen so far. Return False if all candidates were cut off."""
        some = False
        for ask in self._requested.asks:
            context, index = self.key(ask)
            came, name = self.hand[context, index], f"{context}/{index}"
            some |= isinstance(came, Came)
            if any(node["node"] == name for node in self.nodes):  # this request was made before, and is paid
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
        """Name an answer to the problem by its class. Answers to other questions stay: a score of 0.5 is not 1/2."""
        if not answered([candidate]):
            return candidate
        return replace(candidate, answer=self.canonical[candidate.answer or ""])

    def _update_classes(self) -> None:
        """Update the classes of this search's answers. The first answer of a class is the name of the class."""
        given = [c.answer or "" for c in answered(self.seen)]
        texts, kind = sorted({*given}), self.terms.policy.scaffold.answer_kind
        if self.canonical.keys() >= {*texts}:
            return
        canonical = same_answers({"": texts}, by_grader(toolbox().graders(), kind), by_value=kind == MATH)
        merged = {text: text for text in texts} | {text: first for _, text, first in canonical}
        first: dict[str, str] = {}
        for answer in given:
            first.setdefault(merged[answer], answer)
        self.canonical = {text: first[merged[text]] for text in texts}


Asked = tuple[Tree, Ask, RolloutRequest]


@cache
def stepping(policy: Policy, end: str) -> Policy:
    """Return the policy that also stops at the end of a step. The ledger stores its rollouts separately."""
    scaffold = policy.scaffold
    return replace(policy, scaffold=replace(scaffold, stop=(*scaffold.stop, end)))


def too_long(request: RolloutRequest, terms: Terms, length: int | None = None) -> str:
    """Return why a request cannot be sampled; empty if it can. length: tokens of the prompt, if known."""
    if length is None:
        generator = toolbox().generator(terms.policy.model.sha256, terms.lora_rank, terms.sampling.kv_cache)
        length = prompt_length(request, generator)
    return unfitting(length, request.max_tokens, terms.context)


def give_results(pending: Sequence[Asked], rows: Sequence[dict[str, Any]], terms: Terms) -> None:
    """Give ledger rows to their trees, as candidates for the methods."""
    scaffold, graders = terms.policy.scaffold, toolbox().graders()
    paths = [_path(one, row, terms) for one, row in zip(pending, rows, strict=True)]
    read = graders.grade([GradeItem(scaffold, p["completion"], "", p["finish"]) for p in paths])
    steps = [i for i, (_, ask, _) in enumerate(pending) if ask.end and paths[i]["ended"]]
    whole = [(paths[i]["completion"], pending[i][0].problem["gold"], paths[i]["finish"]) for i in steps]
    judged = graders.grade([GradeItem(scaffold, *canonical) for canonical in whole])
    right = {i: verdict.correct for i, verdict in zip(steps, judged, strict=True)}
    scored = _scores(pending, rows, paths, terms)
    for i, ((tree, ask, request), row, path) in enumerate(zip(pending, rows, paths, strict=True)):
        key = (request.problem_id, request.rollout)
        # the stored rollout was sampled with a longer context
        if cut := too_long(request, terms, row["num_prompt_tokens"]):
            tree.hand[key] = cut
            continue
        answer = read[i].canonical if path["ended"] else None
        correct = ask.answers and (right.get(i, False) if ask.end else row["correct"])
        own = {column: row[column] for column in NOTHING if column in row}
        reading, parent = scored[i], tree.parent(ask)
        scores = () if reading.score is None else (reading.score,)
        if parent is not None and tree.method.reward == "process":  # a process model scores all steps again
            scores = (*parent.seen["scores"], *scores)
        node = own | {"answer": answer, "correct": correct, "score": reading.score, "num_scored_tokens": reading.tokens}
        tree.hand[key] = Came(node, path | {"answer": answer, "scores": scores})


def _path(one: Asked, row: Mapping[str, Any], terms: Terms) -> dict[str, Any]:
    """Return the part of a completion that a method sees; for a step, the whole path up to its end."""
    tree, ask, request = one
    seen = {column: row[column] for column in SEEN} | {"ended": True}
    if not ask.end:
        return seen
    parent = tree.parent(ask)
    before = {"num_tokens": 0, "logprob_sum": 0.0} if parent is None else parent.seen
    text, tokens = request.begun + row["completion"], before["num_tokens"] + row["num_tokens"]
    sums = (before["logprob_sum"], row["logprob_sum"])
    goes_on = row["completion"].endswith(ask.end)  # not the path, whose earlier steps end so even if nothing is new
    full = row["finish"] == "length" or (goes_on and tokens >= terms.sampling.max_tokens)
    return {
        "completion": text,
        "trace": terms.policy.scaffold.parse(text).trace,
        "answer": None,
        "finish": "length" if full else "stop",
        "num_tokens": tokens,
        "logprob_sum": None if None in sums else sum(sums),
        "ended": full or not goes_on,
    }


def _scores(
    pending: Sequence[Asked], rows: Sequence[Mapping[str, Any]], paths: Sequence[Mapping[str, Any]], terms: Terms
) -> list[Reading]:
    """Return the reward model's scores, computed together; empty without a model, and for completions that answer
    another question. Self-certainties cost nothing more, because the engine has computed the token distributions."""
    found = [Reading()] * len(pending)
    if any(tree.method.reward == CERTAINTY for tree, _, _ in pending):
        if terms.adapter is not None and not terms.adapter.folder.is_dir():
            raise weights_left(terms.adapter.name, "self-certainties are read from them")
        reader = toolbox().reader(terms.policy.model.sha256)
        sampled = [(row["prompt_ids"], row["token_ids"]) for row in rows]
        with at_work_here():
            return [Reading(round(score, DIGITS)) for score in reader.certainties(sampled, terms.adapter)]
    if terms.reward is None:
        return found
    wanted = [i for i, (_, ask, _) in enumerate(pending) if ask.answers]
    texts = [(pending[i][0].problem["problem"], paths[i]["completion"], paths[i]["ended"]) for i in wanted]
    with at_work_here():
        readings = toolbox().reward_model(terms.reward.sha256).score(texts)
    for i, reading in zip(wanted, readings, strict=True):
        found[i] = reading
    return found


#: The keys of each account that the ledger already had.
Had = dict[tuple[Policy, Sampling], set[Key]]


def search(problems: Sequence[dict[str, Any]], method: Method, terms: Terms) -> tuple[list[Tree], SamplingStats]:
    """Run the search of every problem until it has finished."""
    trees, total = [Tree(problem, method, terms) for problem in problems], SamplingStats()
    size = toolbox().batch_size
    if size is None:
        Stream(trees, terms, total).run()
    else:
        _in_batches(trees, terms, total, size)
    return trees, total


def _in_batches(trees: Sequence[Tree], terms: Terms, total: SamplingStats, size: int) -> None:
    queue = deque(trees)
    while queue:
        batch: list[tuple[Tree, Ask]] = []
        turn: list[Tree] = []
        while queue and len(batch) < size:
            tree = queue.popleft()
            batch += [(tree, ask) for ask in tree.lacking().values()][: size - len(batch)]
            turn.append(tree)
        pending = uncut(batch, terms, {})
        if pending:
            requests = [request for _, _, request in pending]
            total.add(ensure_rollouts(requests, terms.adapter, terms.policy.model, terms.lora_rank))
            give_results(pending, entered(requests).to_pylist(), terms)
        for tree in turn:
            tree.advance()
        queue.extend(tree for tree in turn if not tree.ended)
        say(trees)


def uncut(batch: Sequence[tuple[Tree, Ask]], terms: Terms, had: Had) -> list[Asked]:
    """Return the requests that can be sampled or are in the ledger. Record in the trees why other requests are not."""
    pending: list[Asked] = []
    for tree, ask in batch:
        request = tree.request(ask)
        if not is_entered(request, had) and (cut := too_long(request, terms)):
            tree.hand[request.problem_id, request.rollout] = cut
        else:
            pending.append((tree, ask, request))
    return pending


def is_entered(request: RolloutRequest, had: Had) -> bool:
    whose = request.policy, request.sampling
    if whose not in had:
        had[whose] = ledger().keys(account_of(*whose))
    return (request.problem_id, request.rollout) in had[whose]


def say(trees: Sequence[Tree]) -> None:
    ended = sum(tree.ended for tree in trees)
    furthest = max((tree.round for tree in trees if not tree.ended), default=0)
    progress(ended, len(trees), "problems", f"round {furthest}")


class Stream:
    """Sends requests to the engine at once. The results lead to further requests."""

    def __init__(self, trees: Sequence[Tree], terms: Terms, total: SamplingStats) -> None:
        self.trees, self.terms, self.total = trees, terms, total
        self.away: dict[Key, Asked] = {}
        self.had: Had = {}

    def run(self) -> None:
        first = self._next(self.trees)
        if first:
            terms = self.terms
            stats = ensure_rollouts(first, terms.adapter, terms.policy.model, terms.lora_rank, more=self._came)
            self.total.add(stats)
        say(self.trees)

    def _came(self, rows: Sequence[tuple[RolloutRequest, dict[str, Any]]]) -> list[RolloutRequest]:
        """Process stored rows, and return the next requests."""
        pending = [self.away.pop((request.problem_id, request.rollout)) for request, _ in rows]
        table = pa.Table.from_pylist([row for _, row in rows], schema=LEDGER)
        read = as_read_by(table, self.terms.policy, [request.gold for request, _ in rows])
        give_results(pending, read.to_pylist(), self.terms)
        touched = list({id(tree): tree for tree, _, _ in pending}.values())
        for tree in touched:
            tree.advance()
        say(self.trees)
        return self._next(touched)

    def _next(self, trees: Sequence[Tree]) -> list[RolloutRequest]:
        """Return the requests of these trees that are neither in the ledger nor already sent to the engine."""
        wanted: list[RolloutRequest] = []
        while trees:
            lacking = [
                (tree, ask)
                for tree in trees
                if not tree.ended
                for key, ask in tree.lacking().items()
                if key not in self.away
            ]
            pending = uncut(lacking, self.terms, self.had)
            there = [one for one in pending if is_entered(one[2], self.had)]
            if there:
                give_results(there, entered([request for _, _, request in there]).to_pylist(), self.terms)
            for one in pending:
                request = one[2]
                if (request.problem_id, request.rollout) not in one[0].hand:
                    self.away[request.problem_id, request.rollout] = one
                    wanted.append(request)
            before = {id(tree): tree.round for tree in trees}
            for tree in trees:
                tree.advance()
            trees = [tree for tree in trees if not tree.ended and tree.round > before[id(tree)]]
        return wanted


@stage(Searches, version=4)
def search_problems(
    *,
    pool: Pool,
    splits: Splits | Benchmark,
    policy: Policy,
    sampling: Sampling,
    name: str,
    method: Method,
    tokens: int,
    context: int,
    grader_version: str,
    split: str | None = None,
    training: Training | None = None,
    lora_rank: int = 0,
    reward: BaseModel | None = None,
) -> Payload:
    """Search every problem of `split` with one method. Return one row per node.

    name: the method's name. tokens: budget of prompts and completions per problem; beyond it no round starts. context:
    largest number of tokens of a prompt with its completion; a longer request is not made, and its row says why.
    grader_version: version for the column `correct`, which no method sees. reward: the scoring model, if the method
    needs one.
    """
    if toolbox().grader.version != grader_version:
        raise UserError(f"grader {grader_version} is not the active grader ({toolbox().grader.version})")
    problems = of_split(store().read(pool), store().read(splits), split).to_pylist()
    terms = Terms(policy, sampling, tokens, context, served(policy, training), lora_rank, reward)
    trees, stats = search(problems, method, terms)
    if cut := cut_summary(trees):
        progress(len(trees), len(trees), "problems", cut, event="noted")
    notes = {"scaffold": policy.scaffold.digest} | ({"cut": cut} if cut else {})
    if stats.rollouts:
        notes |= stats.note(toolbox().generator(policy.model.sha256, lora_rank, sampling.kv_cache))
    return Payload(rows_of(trees, name, policy, grader_version), notes=notes)


def cut_summary(trees: Sequence[Tree]) -> str:
    """Return how many problems had a request that could not be sampled, with the most frequent reason, as text."""
    cut = [node["cut"] for tree in trees for node in tree.nodes if node["cut"]]
    if not cut:
        return ""
    problems = sum(any(node["cut"] for node in tree.nodes) for tree in trees)
    return f"{len(cut)} requests of {problems} problems were cut; most often: {Counter(cut).most_common(1)[0][0]}"


def rows_of(trees: Sequence[Tree], name: str, policy: Policy, grader_version: str) -> pa.Table:
    """Return the nodes of all trees. Schema: Searches."""
    shared = {
        "arm": policy.arm,
        "adapter": policy.adapter,
        "step": policy.step,
        "seed": policy.seed,
        "method": name,
        "grader_version": grader_version,
    }
    rows = [
        {"problem_id": tree.problem["problem_id"], "source": tree.problem["source"]} | shared | node
        for tree in trees
        for node in tree.nodes
    ]
    return pa.Table.from_pylist(rows, schema=Searches.schema)
