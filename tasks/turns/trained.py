"""Rows of the ledger as the learner sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.domain.grpo.second_scaffold import answer_key
from tasks.domain.grpo.steps import TrainRollout
from tasks.domain.scaffolds import Scaffold, TagRule
from tasks.engines.sampling.sampler import RolloutRequest

Row = dict[str, Any]
#: Makes rollouts durable and reads them, in this order: rows of the ledger. All of one turn.
Serve = Callable[[Sequence[RolloutRequest]], pa.Table]


def as_train_rollout(row: Row, scaffold: Scaffold, tag_rule: TagRule) -> TrainRollout:
    """What the learner needs of a ledger row."""
    return TrainRollout(
        problem_id=row["problem_id"],
        source=row["source"],
        rollout=row["rollout"],
        prompt_ids=row["prompt_ids"],
        token_ids=row["token_ids"],
        logprobs_T=np.asarray(row["logprobs"], np.float32),
        correct=row["correct"],
        tag_valid=scaffold.parse(row["completion"], tag_rule).tag_valid,
        truncated=row["finish"] == "length",
        answer=answer_key(row["canonical"], correct=row["correct"], kind=scaffold.answer_kind),
    )
