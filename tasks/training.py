"""Training: the variance band minus held-out → a LoRA adapter, and one row a step.

The learner decides what to sample and how to update; this stage makes each step's rollouts durable before the
learner sees them, and samples the held-out problems of an evaluated step in the same engine call.
"""

from __future__ import annotations

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import UserError
from storage.schemas import EXPOSURE, STEPS
from storage.sql import query
from tasks.domain.grpo import LearnerConfig, PromptProblem, StepPlan, TrainRollout
from tasks.domain.policies import Policy, Sampling
from tasks.rollouts import ensure_rollouts, entered, wanted
from tasks.stage import Payload, Ref, making, progress, stage, store, toolbox, workdir


def trainable(problems: pa.Table, splits: pa.Table, bands: pa.Table) -> pa.Table:
    """The problems that give a group-relative method something to learn from, and are not held out; pool order."""
    return query(
        "select p.* from problems p join bands b using (problem_id) join splits s using (problem_id)"
        " where b.band = 'variance' and s.split = 'train' order by p.rowid",
        problems=problems.append_column("rowid", pa.array(range(problems.num_rows))), bands=bands, splits=splits,
    )  # fmt: skip


def as_train_rollout(row: dict[str, object]) -> TrainRollout:
    return TrainRollout(
        problem_id=row["problem_id"], source=row["source"], rollout=row["rollout"], prompt_ids=row["prompt_ids"],
        token_ids=row["token_ids"], logprobs_T=np.asarray(row["logprobs"], np.float32), correct=row["correct"],
        tag_valid=row["tag_valid"], truncated=row["finish"] == "length",
    )  # type: ignore[arg-type]  # fmt: skip


@stage("training", version=1)
def train_adapter(
    pool: Ref,
    splits: Ref,
    bands: Ref,
    base: Policy,
    learner: LearnerConfig,
    rollouts: Sampling,
    evaluation: Sampling,
    evaluation_group_size: int,
    init: Ref | None = None,
) -> Payload:
    """Rows: storage.schemas.STEPS. Files: `step-NNNN/` adapters in PEFT format, exposure.parquet.

    Errors: UserError if no problem is left to train on.
    """
    from tasks.engines.learner import train

    problems, held = store().read(pool), store().read(splits)
    chosen = trainable(problems, held, store().read(bands))
    if chosen.num_rows == 0:
        raise UserError(
            f"{base.arm}: no problem outside held-out is in the variance band, so no group would have a gradient;"
            " screen a harder or easier pool, or another model"
        )
    by_id = {row["problem_id"]: row for row in chosen.to_pylist()}
    heldout = problems.filter(pc.is_in(problems["problem_id"], value_set=_heldout_ids(held)))
    tools, folder = toolbox(), workdir()
    draw = replace(rollouts, seed=derived_seed(rollouts.seed, learner.seed))
    tallies = Tally()

    def sample_step(plan: StepPlan) -> list[TrainRollout]:
        policy = replace(base, adapter=str(making()) if plan.policy_step else None, step=plan.policy_step)
        asked = pa.Table.from_pylist([by_id[p] for p in plan.problem_ids], schema=chosen.schema)
        wants = wanted(asked, policy, draw, range(plan.group_size))
        evaluated = wanted(heldout, policy, evaluation, range(evaluation_group_size)) if plan.evaluate else []
        tally = ensure_rollouts([*wants, *evaluated], plan.adapter, base.model, learner.lora_rank)
        return [as_train_rollout(row) for row in entered(wants).to_pylist()] if wants else []

    result = train(...)
