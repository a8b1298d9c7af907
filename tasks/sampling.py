"""Sampling stages: problems × policy → graded rollouts. Screening, evaluation and training use the same sampler and
grader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import pyarrow as pa

from storage.artifacts.schemas import Benchmark, Pool, Rollouts, Splits, Training
from storage.bands import in_variance_band
from tasks.domain.policies import Policy, Sampling
from tasks.domain.problems.problems import of_split
from tasks.engines.sampling.sampler import RolloutRequest, SamplingStats
from tasks.rollouts import account_of, ensure_rollouts, entered, ledger_keys, requests_for, served
from tasks.stage import PART_ROWS, Payload, Step, ledger, stage, store, toolbox

#: Rollouts per request: an hour of a GPU or more, so that it is rarely idle because of a few slow rollouts.
TOGETHER = 100_000
JUDGED = pa.schema([Rollouts.schema.field(name) for name in ("problem_id", "correct")])


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
    """Sample `group_size` rollouts of every problem of `split` (None: of the whole pool) under one policy. training:
    the artifact whose adapter at `policy.adapter_step` is served; None at step 0."""
    problems = of_split(store().read(pool), store().read(splits), split)
    return _payload(problems, Sampled(policy, sampling, group_size, training, lora_rank), _whole_groups)


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
    """Sample rollouts of every problem until one is correct and one is wrong, at most `group_size`. Adaptive
    screening takes the first rollouts of `sample_rollouts`, so each problem's band equals the band of its whole group.
    Further rollouts in the ledger are left out, so that the artifact does not depend on earlier runs."""
    problems = of_split(store().read(pool), store().read(splits), split)
    return _payload(problems, Sampled(policy, sampling, group_size, training, lora_rank), _until_decided)


@dataclass(frozen=True, slots=True)
class Sampled:
    """A policy with its sampling parameters, for any problems."""

    policy: Policy
    sampling: Sampling
    group_size: int
    training: Training | None
    lora_rank: int

    def requests(self, problems: pa.Table, rollouts: range) -> list[RolloutRequest]:
        return requests_for(problems, self.policy, self.sampling, rollouts)

    def ensure(self, requests: list[RolloutRequest], ahead: int = 0, total: int | None = None) -> SamplingStats:
        adapter = served(self.policy, self.training)
        return ensure_rollouts(requests, adapter, self.policy.model, self.lora_rank, ahead=ahead, total=total)


#: Samples rollouts into the ledger; returns how many, from the first, each problem has.
Drawing = Callable[[Sampled, pa.Table, SamplingStats], dict[str, int]]


def _whole_groups(draw: Sampled, problems: pa.Table, stats: SamplingStats) -> dict[str, int]:
    size = draw.group_size
    for ahead, part in in_parts(problems, size):
        requests = draw.requests(part, range(size))
        stats.add(draw.ensure(requests, ahead * size, problems.num_rows * size))
    return dict.fromkeys(problems["problem_id"].to_pylist(), size)


def _until_decided(draw: Sampled, problems: pa.Table, stats: SamplingStats) -> dict[str, int]:
    size, right, done = draw.group_size, Counter[str](), dict.fromkeys(problems["problem_id"].to_pylist(), 0)
    for _, part in in_parts(problems, size):
        ids = part["problem_id"].to_pylist()
        for rollouts in (range(min(2, size)), *(range(i, i + 1) for i in range(2, size))):
            undecided = part.filter(pa.array([not in_variance_band(right[one], done[one]) for one in ids], pa.bool_()))
            if not (requests := draw.requests(undecided, rollouts)):
                break
            stats.add(draw.ensure(requests))
            done |= dict.fromkeys(undecided["problem_id"].to_pylist(), rollouts.stop)
            for start in range(0, len(requests), PART_ROWS):
                for row in entered(requests[start : start + PART_ROWS], JUDGED).to_pylist():
                    right[row["problem_id"]] += row["correct"]
    return done


#: Stages whose problems can be split into shards for several workers.
SHARDED: dict[str, Drawing] = {"sample_rollouts": _whole_groups, "screen_adaptively": _until_decided}


def enter_shard(step: Step, rollouts: int, shard: int) -> None:
    """Sample the rollouts of one shard of a stage of SHARDED into the ledger. rollouts: approximate size of a shard."""
    draw, problems = _sampled_problems(step)
    part = [part for _, part in in_parts(problems, draw.group_size, rollouts)][shard]
    SHARDED[step.recipe.stage](draw, part, SamplingStats())


def open_shards(step: Step, rollouts: int, done: set[int]) -> Iterator[int]:
    """Yield the shards with missing rollouts. done: complete shards, which are skipped; newly found ones are added."""
    draw, problems = _sampled_problems(step, Found)
    for shard, (_, part) in enumerate(in_parts(problems, draw.group_size, rollouts)):
        if shard in done:
            continue
        try:
            SHARDED[step.recipe.stage](draw, part, SamplingStats())
            done.add(shard)
        except _Lacking:
            yield shard


class _Lacking(Exception):
    """A rollout is not in the ledger."""


@dataclass(frozen=True, slots=True)
class Found(Sampled):
    """Checks the ledger instead of sampling."""

    def ensure(self, requests: list[RolloutRequest], ahead: int = 0, total: int | None = None) -> SamplingStats:
        if ledger().entries(account_of(self.policy, self.sampling)).lacking(ledger_keys(requests)):
            raise _Lacking
        return SamplingStats()


def _sampled_problems(step: Step, how: type[Sampled] = Sampled) -> tuple[Sampled, pa.Table]:
    given: Mapping[str, Any] = step.arguments
    draw = how(*(given[name] for name in ("policy", "sampling", "group_size", "training", "lora_rank")))
    return draw, of_split(store().read(given["pool"]), store().read(given["splits"]), given["split"])


def in_parts(problems: pa.Table, group_size: int, most: int = TOGETHER) -> Iterator[tuple[int, pa.Table]]:
    """Yield (number of earlier problems, problems) of every part. Parts have whole batches, so batches do not depend on
    them."""
    batch = toolbox().batch_size or 1
    filling = batch // gcd(batch, group_size)
    each = max(1, most // (filling * max(1, group_size))) * filling
    for start in range(0, problems.num_rows, each):
        yield start, problems.slice(start, each)


def _payload(problems: pa.Table, draw: Sampled, drawing: Drawing) -> Payload:
    stats = SamplingStats()
    done = drawing(draw, problems, stats)
    there, most = sum(done.values()), problems.num_rows * draw.group_size
    notes = {"reused_rollouts": str(there - stats.rollouts), "scaffold": draw.policy.scaffold.digest}
    if stats.rollouts:
        notes |= stats.note(toolbox().generator(draw.policy.model.sha256, draw.lora_rank, draw.sampling.kv_cache))
    if drawing is _until_decided:
        notes["saved_rollouts"] = str(most - there)
    return Payload(_read(problems, done, draw), notes=notes)


def _read(problems: pa.Table, done: Mapping[str, int], draw: Sampled) -> Iterator[pa.Table]:
    """Yield the ledger's rows by problem."""
    most = max([1, *done.values()])
    entries, each = ledger().entries(account_of(draw.policy, draw.sampling)), max(1, PART_ROWS // most)
    for start in range(0, problems.num_rows, each):
        requests = draw.requests(problems.slice(start, each), range(most))
        yield entered([one for one in requests if one.rollout < done[one.problem_id]], Rollouts.schema, entries)
