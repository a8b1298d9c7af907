"""Convert a method's requests into rollout requests, and ledger rows into what the method sees, without any gold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from storage.artifacts.fingerprint import derived_seed
from tasks.domain.policies import Policy
from tasks.domain.search.method import CERTAINTY, Ask
from tasks.engines.grading.graders import GradeItem
from tasks.engines.rewarding import DIGITS, Reading
from tasks.engines.sampling.prompts import prompt_length, unfitting
from tasks.engines.sampling.sampler import RolloutRequest
from tasks.metering import at_work_here
from tasks.rollouts import weights_left
from tasks.searching.tree import NOTHING, SEEN, Came, Terms, Tree
from tasks.stage import toolbox

Asked = tuple[Tree, Ask, RolloutRequest]


def request_for(tree: Tree, ask: Ask, terms: Terms) -> RolloutRequest:
    """Return the rollout request of an Ask. Only answers to the problem have its gold, single steps do not. All steps
    of a path share the tokens of one completion; the remaining number follows from the parent."""
    problem, context = tree.problem, ask.context(tree.problem["problem_id"])
    parent = tree.parent(ask)
    return RolloutRequest(
        context,
        problem["source"],
        problem["problem"] if ask.question is None else ask.question,
        problem["gold"] if ask.answers and not ask.end else "",
        ask.index,
        stepping(terms.policy, ask.end) if ask.end else terms.policy,
        terms.sampling,
        derived_seed(terms.sampling.seed, context, ask.index),
        begun="" if parent is None else parent.seen["completion"],
        left=None if parent is None else terms.sampling.max_tokens - parent.seen["num_tokens"],
    )


@cache
def stepping(policy: Policy, end: str) -> Policy:
    """Return the policy that also stops at the end of a step; it has its own account in the ledger."""
    scaffold = policy.scaffold
    return replace(policy, scaffold=replace(scaffold, stop=(*scaffold.stop, end)))


def too_long(request: RolloutRequest, terms: Terms, length: int | None = None) -> str:
    """Return why a request cannot be sampled; empty if it can. length: of its prompt, if known."""
    if length is None:
        generator = toolbox().generator(terms.policy.model.sha256, terms.lora_rank, terms.sampling.kv_cache)
        length = prompt_length(request, generator)
    return unfitting(length, request.max_tokens, terms.context)


def hand_over(asked: Sequence[Asked], rows: Sequence[dict[str, Any]], terms: Terms) -> None:
    """Give ledger rows to their trees, in the form that methods see."""
    scaffold, graders = terms.policy.scaffold, toolbox().graders()
    paths = [_path(one, row, terms) for one, row in zip(asked, rows, strict=True)]
    read = graders.grade([GradeItem(scaffold, p["completion"], "", p["finish"]) for p in paths])
    steps = [i for i, (_, ask, _) in enumerate(asked) if ask.end and paths[i]["ended"]]
    whole = [(paths[i]["completion"], asked[i][0].problem["gold"], paths[i]["finish"]) for i in steps]
    judged = graders.grade([GradeItem(scaffold, *told) for told in whole])
    right = {i: verdict.correct for i, verdict in zip(steps, judged, strict=True)}
    scored = _scores(asked, rows, paths, terms)
    for i, ((tree, ask, request), row, path) in enumerate(zip(asked, rows, paths, strict=True)):
        key = (request.problem_id, request.rollout)
        # a rollout that was sampled with a longer context
        if cut := too_long(request, terms, row["num_prompt_tokens"]):
            tree.hand[key] = cut
            continue
        answer = read[i].canonical if path["ended"] else None
        correct = ask.answers and (right.get(i, False) if ask.end else row["correct"])
        own = {column: row[column] for column in NOTHING if column in row}
        reading, parent = scored[i], tree.parent(ask)
        scores = () if reading.score is None else (reading.score,)
        if parent is not None and tree.method.reward == "process":  # a process model scores every step
            scores = (*parent.seen["scores"], *scores)
        node = own | {"answer": answer, "correct": correct, "score": reading.score, "num_scored_tokens": reading.tokens}
        tree.hand[key] = Came(node, path | {"answer": answer, "scores": scores})


def _path(one: Asked, row: Mapping[str, Any], terms: Terms) -> dict[str, Any]:
    """Return what a method sees of a completion; for a step, the whole path to its end."""
    tree, ask, request = one
    seen = {column: row[column] for column in SEEN} | {"ended": True}
    if not ask.end:
        return seen
    parent = tree.parent(ask)
    before = {"num_tokens": 0, "logprob_sum": 0.0} if parent is None else parent.seen
    text, tokens = request.begun + row["completion"], before["num_tokens"] + row["num_tokens"]
    sums = (before["logprob_sum"], row["logprob_sum"])
    goes_on = row["completion"].endswith(ask.end)  # not the path: what says nothing more has ended
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
    asked: Sequence[Asked], rows: Sequence[Mapping[str, Any]], paths: Sequence[Mapping[str, Any]], terms: Terms
) -> list[Reading]:
    """Return the reward model's scores, computed together; empty without a model, and for completions that answer no
    problem. Self-certainties use distributions that the engine had already, so reading them again is not counted as a
    cost."""
    found = [Reading()] * len(asked)
    if any(tree.method.reward == CERTAINTY for tree, _, _ in asked):
        if terms.adapter is not None and not terms.adapter.folder.is_dir():
            raise weights_left(terms.adapter.name, "self-certainties are read from them")
        reader = toolbox().reader(terms.policy.model.sha256)
        sampled = [(row["prompt_ids"], row["token_ids"]) for row in rows]
        with at_work_here():
            return [Reading(round(score, DIGITS)) for score in reader.certainties(sampled, terms.adapter)]
    if terms.reward is None:
        return found
    wanted = [i for i, (_, ask, _) in enumerate(asked) if ask.answers]
    texts = [(asked[i][0].problem["problem"], paths[i]["completion"], paths[i]["ended"]) for i in wanted]
    with at_work_here():
        readings = toolbox().reward_model(terms.reward.sha256).score(texts)
    for i, reading in zip(wanted, readings, strict=True):
        found[i] = reading
    return found
