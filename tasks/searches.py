"""Test-time search stages: problems × policy × method → one tree per problem, with the answer after each round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from storage.artifacts.kinds import Benchmark, Pool, Searches, Splits, Training
from storage.errors import UserError
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.domain.problems.problems import problem_id
from tasks.domain.problems.splits import of_split
from tasks.domain.search.method import Method
from tasks.rollouts import served
from tasks.searching import Terms, Tree, search
from tasks.stage import Payload, progress, stage, store, toolbox


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
    """Search every problem of `split` with one method; return one row per node.

    name: of the method. tokens: budget of prompts and completions per problem; no round starts above it. context: limit
    of a prompt with its completion; longer requests are cut, with a reason in their row. grader_version: of `correct`,
    which no method sees. reward: the scoring model, if the method needs one.
    """
    if toolbox().grader.version != grader_version:
        raise UserError(f"grader {grader_version} is not the one that is active ({toolbox().grader.version})")
    problems = of_split(store().read(pool), store().read(splits), split).to_pylist()
    terms = Terms(
        policy=policy,
        sampling=sampling,
        tokens=tokens,
        context=context,
        adapter=served(policy, training),
        lora_rank=lora_rank,
        reward=reward,
    )
    trees, stats = search(problems, method, terms)
    if cut := said_of_cuts(trees):
        progress(len(trees), len(trees), "problems", cut, event="noted")
    notes = {"scaffold": policy.scaffold.digest} | ({"cut": cut} if cut else {})
    if stats.rollouts:
        notes |= stats.note(toolbox().generator(policy.model.sha256, lora_rank, sampling.kv_cache))
    return Payload(rows_of(trees, name, policy, grader_version), notes=notes)


@stage(Searches, version=4)
def search_question(
    *,
    question: str,
    policy: Policy,
    sampling: Sampling,
    name: str,
    method: Method,
    tokens: int,
    context: int,
    grader_version: str,
    training: Training | None = None,
    lora_rank: int = 0,
    reward: BaseModel | None = None,
) -> Payload:
    """Search for the answer of one question outside any pool."""
    problem = {"problem_id": problem_id(question), "source": "asked", "problem": question, "gold": ""}
    terms = Terms(
        policy=policy,
        sampling=sampling,
        tokens=tokens,
        context=context,
        adapter=served(policy, training),
        lora_rank=lora_rank,
        reward=reward,
    )
    trees, _ = search([problem], method, terms)
    return Payload(rows_of(trees, name, policy, grader_version))


def said_of_cuts(trees: Sequence[Tree]) -> str:
    """Return how many problems had a cut request, and the most frequent reason."""
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
