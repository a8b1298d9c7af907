"""Test-time search: problems × policy × method → one tree a problem, and what each of its rounds would answer."""

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
from tasks.searching.driver import search
from tasks.searching.tree import Terms, Tree
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
    """One search of every problem of `split` under a method, a row a node.

    name: what the method is called. tokens: of prompts and completions, after which a problem's search starts no
    further round. context: tokens that a prompt and its completion may have together; what would need more is cut, with
    a reason in its row. grader_version: whose verdicts `correct` is; no method sees them. reward: the model that
    scores, where the method has one.
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
    """The same of one question that no pool holds and nobody knows the answer to."""
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
    """In numbers: how many problems had a request cut, and the commonest reason."""
    cut = [node["cut"] for tree in trees for node in tree.nodes if node["cut"]]
    if not cut:
        return ""
    problems = sum(any(node["cut"] for node in tree.nodes) for tree in trees)
    return f"{len(cut)} requests of {problems} problems were cut; most often: {Counter(cut).most_common(1)[0][0]}"


def rows_of(trees: Sequence[Tree], name: str, policy: Policy, grader_version: str) -> pa.Table:
    """Schema: Searches."""
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
