"""Sampling stages: problems × policy → graded rollouts, with the same sampler and grader for every use."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import pyarrow as pa

from storage.artifacts.schemas import Benchmark, Pool, Rollouts, Splits, Training
from tasks.domain.policies import Policy, Sampling
from tasks.domain.problems.problems import of_split
from tasks.engines.sampling.sampler import RolloutRequest, SamplingStats
from tasks.rollouts import account_of, ensure_rollouts, entered, ledger_keys, requests_for, served
from tasks.stage import PART_ROWS, Payload, Step, ledger, stage, store, toolbox

#: Rollouts per call of the engine. They take a GPU an hour or more, so it is rarely idle because of a few slow ones.
TOGETHER = 100_000


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
    """Sample `group_size` rollouts of each problem of `split` (None: of the whole pool) under one policy. training: the
    artifact whose adapter at `policy.adapter_step` samples; None at step 0."""
    problems = of_split(store().read(pool), store().read(splits), split)
    draw, stats = Sampled(policy, sampling, group_size, training, lora_rank), SamplingStats()
    for ahead, part in in_parts(problems, group_size):
        stats.add(draw.ensure(part, ahead, problems.num_rows))
    notes = {"reused_rollouts": str(problems.num_rows * group_size - stats.rollouts)}
    notes |= {"scaffold": policy.scaffold.digest}
    if stats.rollouts:
        notes |= stats.note(toolbox().generator(policy.model.sha256, lora_rank, sampling.kv_cache))
    return Payload(draw.read(problems), notes=notes)


@dataclass(frozen=True, slots=True)
class Sampled:
    """A policy with its sampling parameters."""

    policy: Policy
    sampling: Sampling
    group_size: int
    training: Training | None
    lora_rank: int

    def requests(self, problems: pa.Table) -> list[RolloutRequest]:
        return requests_for(problems, self.policy, self.sampling, range(self.group_size))

    def ensure(self, problems: pa.Table, ahead: int, total: int) -> SamplingStats:
        """Sample the rollouts that the ledger lacks. ahead, total: number of earlier problems, and of all."""
        requests, adapter, size = self.requests(problems), served(self.policy, self.training), self.group_size
        return ensure_rollouts(
            requests, adapter, self.policy.model, self.lora_rank, ahead=ahead * size, total=total * size
        )

    def read(self, problems: pa.Table) -> Iterator[pa.Table]:
        """Yield the ledger's rows by problem."""
        entries = ledger().entries(account_of(self.policy, self.sampling))
        each = max(1, PART_ROWS // max(1, self.group_size))
        for start in range(0, problems.num_rows, each):
            yield entered(self.requests(problems.slice(start, each)), Rollouts.schema, entries)


#: Name of the stage whose problems can be divided into shards for several workers.
SHARDED = sample_rollouts.name


def enter_shard(step: Step, rollouts: int, shard: int) -> None:
    """Sample the rollouts of one shard of a stage into the ledger. rollouts: approximate size of a shard."""
    draw, problems = _sampled_problems(step)
    part = [part for _, part in in_parts(problems, draw.group_size, rollouts)][shard]
    draw.ensure(part, 0, part.num_rows)


def open_shards(step: Step, rollouts: int, done: set[int]) -> Iterator[int]:
    """Yield the shards with missing rollouts. done: complete shards, to skip; new ones are added to it."""
    draw, problems = _sampled_problems(step)
    for shard, (_, part) in enumerate(in_parts(problems, draw.group_size, rollouts)):
        if shard in done:
            continue
        entries = ledger().entries(account_of(draw.policy, draw.sampling))
        if entries.lacking(ledger_keys(draw.requests(part))):
            yield shard
        else:
            done.add(shard)


def _sampled_problems(step: Step) -> tuple[Sampled, pa.Table]:
    given: Mapping[str, Any] = step.arguments
    draw = Sampled(*(given[name] for name in ("policy", "sampling", "group_size", "training", "lora_rank")))
    return draw, of_split(store().read(given["pool"]), store().read(given["splits"]), given["split"])


def in_parts(problems: pa.Table, group_size: int, most: int = TOGETHER) -> Iterator[tuple[int, pa.Table]]:
    """Yield (number of earlier problems, problems) of each part. Every part ends where a batch ends, so that batches
    are the same as without parts."""
    batch = toolbox().batch_size or 1
    filling = batch // gcd(batch, group_size)
    each = max(1, most // (filling * max(1, group_size))) * filling
    for start in range(0, problems.num_rows, each):
        yield start, problems.slice(start, each)
