"""Sampling: problems × policy → graded rollouts. The same sampler and grader screen, evaluate and feed training."""

from __future__ import annotations

import pyarrow as pa

from storage.artifacts.kinds import Benchmark, Pool, Rollouts, Splits, Training
from tasks.domain.policies import Policy, Sampling
from tasks.domain.problems.splits import of_split
from tasks.engines.sampling.sampler import RolloutRequest, SamplingStats
from tasks.rollouts import ensure_rollouts, entered, requests_for, served
from tasks.stage import Payload, stage, store, toolbox


@stage(Rollouts, version=2)
def sample_rollouts(
    *,
    pool: Pool,
    splits: Splits | Benchmark,
    policy: Policy,
    sampling: Sampling,
    group_size: int,
    split: str | None = None,
    training: Training | None = None,
    lora_rank: int = 0,
) -> Payload:
    """`group_size` rollouts of every problem of `split` (null: of the whole pool) under one policy.

    training: the artifact whose adapter at `policy.adapter_step` is served; null at step 0.
    """
    problems = of_split(store().read(pool), store().read(splits), split)
    requested = requests_for(problems, policy, sampling, range(group_size))
    stats = ensure_rollouts(requested, served(policy, training), policy.model, lora_rank)
    return _payload(requested, [stats], policy, lora_rank)


@stage(Rollouts, version=2)
def screen_adaptively(
    *,
    pool: Pool,
    splits: Splits,
    policy: Policy,
    sampling: Sampling,
    group_size: int,
    split: str | None = None,
    training: Training | None = None,
    lora_rank: int = 0,
) -> Payload:
    """Rollouts of every problem until a correct and a wrong one were seen, `group_size` where they never are.

    They are the first of the rollouts that `sample_rollouts` draws, so each problem's band is the one that its whole
    group has. What the ledger holds beyond that is left out: the artifact does not depend on what was paid before.
    """
    problems = of_split(store().read(pool), store().read(splits), split)
    adapter, requested, stats = served(policy, training), [], []
    seen: dict[str, set[bool]] = {problem: set() for problem in problems["problem_id"].to_pylist()}
    for drawn in (range(min(2, group_size)), *(range(i, i + 1) for i in range(2, group_size))):
        undecided = pa.array([len(seen[p]) < 2 for p in problems["problem_id"].to_pylist()], pa.bool_())
        asked = requests_for(problems.filter(undecided), policy, sampling, drawn)
        if not asked:
            break
        stats.append(ensure_rollouts(asked, adapter, policy.model, lora_rank))
        for row in entered(asked).select(["problem_id", "correct"]).to_pylist():
            seen[row["problem_id"]].add(row["correct"])
        requested += asked
    place = {problem: i for i, problem in enumerate(seen)}
    requested.sort(key=lambda w: (place[w.problem_id], w.rollout))
    made = _payload(requested, stats, policy, lora_rank)
    return Payload(
        made.table, notes=(made.notes or {}) | {"saved_rollouts": str(len(place) * group_size - len(requested))}
    )


def _payload(requested: list[RolloutRequest], parts: list[SamplingStats], policy: Policy, lora_rank: int) -> Payload:
    stats = SamplingStats(
        rollouts=sum(t.rollouts for t in parts),
        tokens=sum(t.tokens for t in parts),
        seconds=sum(t.seconds for t in parts),
        grading_seconds=sum(t.grading_seconds for t in parts),
    )
    notes = {"reused_rollouts": str(len(requested) - stats.rollouts), "scaffold": policy.scaffold.digest}
    if stats.rollouts:
        notes |= stats.note(toolbox().generator(policy.model.sha256, lora_rank))
    return Payload(entered(requested).select(Rollouts.schema.names).cast(Rollouts.schema), notes=notes)
