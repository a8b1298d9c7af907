"""Sampling: problems × policy → graded rollouts. The same sampler and grader screen, evaluate and feed training."""

from __future__ import annotations

from storage.schemas import ROLLOUTS
from tasks.domain.policies import Policy, Sampling
from tasks.engines.protocols import ServedAdapter
from tasks.rollouts import ensure_rollouts, entered, of_split, wanted
from tasks.stage import Payload, Ref, stage, store, toolbox


@stage("rollouts", version=1)
def sample_rollouts(
    pool: Ref,
    splits: Ref,
    policy: Policy,
    sampling: Sampling,
    group_size: int,
    split: str | None = None,
    training: Ref | None = None,
    lora_rank: int = 0,
) -> Payload:
    """`group_size` rollouts of every problem of `split` (null: of the whole pool) under one policy.

    training: the artifact whose adapter at `policy.adapter_step` is served; null at step 0.
    """
    problems = of_split(store().read(pool), store().read(splits), split)
    wants = wanted(problems, policy, sampling, range(group_size))
    adapter = None
    if training is not None and policy.adapter_step:
        folder = store().files(training) / f"step-{policy.adapter_step:04d}"
        adapter = ServedAdapter(f"{training}-step-{policy.adapter_step}", folder)
    tally = ensure_rollouts(wants, adapter, policy.model, lora_rank)
    notes = {"reused_rollouts": str(len(wants) - tally.rollouts)}
    if tally.rollouts:
        notes |= tally.note(toolbox().generator(policy.model.sha256, lora_rank))
    return Payload(entered(wants).select(ROLLOUTS.names).cast(ROLLOUTS), notes=notes)
