"""Sampling: problems × policy → graded rollouts. The same sampler and grader screen, evaluate and feed training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd

import pyarrow as pa

from storage.artifacts.kinds import Benchmark, Pool, Rollouts, Splits, Training
from tasks.domain.policies import Policy, Sampling
from tasks.domain.problems.splits import of_split
from tasks.engines.sampling.sampler import SamplingStats
from tasks.rollouts import account_of, ensure_rollouts, entered, requests_for, served
from tasks.stage import PART_ROWS, Payload, ledger, stage, store, toolbox

#: Rollouts that are asked for together: an hour of a GPU or more, so that it is seldom left to the last few of them.
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
    """`group_size` rollouts of every problem of `split` (null: of the whole pool) under one policy.

    training: the artifact whose adapter at `policy.adapter_step` is served; null at step 0.
    """
    problems = of_split(store().read(pool), store().read(splits), split)
    adapter, stats, total = served(policy, training), SamplingStats(), problems.num_rows * group_size
    for ahead, part in in_parts(problems, group_size):
        requested = requests_for(part, policy, sampling, range(group_size))
        stats.add(ensure_rollouts(requested, adapter, policy.model, lora_rank, ahead=ahead * group_size, total=total))
    drawn = dict.fromkeys(problems["problem_id"].to_pylist(), group_size)
    return _payload(problems, drawn, stats, policy, sampling, lora_rank)


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
    adapter, stats = served(policy, training), SamplingStats()
    drawn = dict.fromkeys(problems["problem_id"].to_pylist(), 0)
    for _, part in in_parts(problems, group_size):
        seen: dict[str, set[bool]] = {problem: set() for problem in part["problem_id"].to_pylist()}
        for rollouts in (range(min(2, group_size)), *(range(i, i + 1) for i in range(2, group_size))):
            undecided = part.filter(pa.array([len(found) < 2 for found in seen.values()], pa.bool_()))
            asked = requests_for(undecided, policy, sampling, rollouts)
            if not asked:
                break
            stats.add(ensure_rollouts(asked, adapter, policy.model, lora_rank))
            drawn |= dict.fromkeys(undecided["problem_id"].to_pylist(), rollouts.stop)
            for start in range(0, len(asked), PART_ROWS):
                for row in entered(asked[start : start + PART_ROWS], JUDGED).to_pylist():
                    seen[row["problem_id"]].add(row["correct"])
    made = _payload(problems, drawn, stats, policy, sampling, lora_rank)
    saved = {"saved_rollouts": str(problems.num_rows * group_size - sum(drawn.values()))}
    return Payload(made.table, notes=(made.notes or {}) | saved)


def in_parts(problems: pa.Table, group_size: int, most: int = TOGETHER) -> Iterator[tuple[int, pa.Table]]:
    """(problems before it, problems) of every part, whose rollouts fill whole batches: parts are batched as all are."""
    batch = toolbox().batch_size or 1
    filling = batch // gcd(batch, group_size)
    each = max(1, most // (filling * max(1, group_size))) * filling
    for start in range(0, problems.num_rows, each):
        yield start, problems.slice(start, each)


def _payload(
    problems: pa.Table,
    drawn: Mapping[str, int],
    stats: SamplingStats,
    policy: Policy,
    sampling: Sampling,
    lora_rank: int,
) -> Payload:
    """drawn: how many rollouts of each problem, the first ones."""
    notes = {"reused_rollouts": str(sum(drawn.values()) - stats.rollouts), "scaffold": policy.scaffold.digest}
    if stats.rollouts:
        notes |= stats.note(toolbox().generator(policy.model.sha256, lora_rank))
    return Payload(_read(problems, drawn, policy, sampling), notes=notes)


def _read(problems: pa.Table, drawn: Mapping[str, int], policy: Policy, sampling: Sampling) -> Iterator[pa.Table]:
    """The ledger's rows, problem by problem."""
    most = max([1, *drawn.values()])
    entries, each = ledger().entries(account_of(policy, sampling)), max(1, PART_ROWS // most)
    for start in range(0, problems.num_rows, each):
        asked = requests_for(problems.slice(start, each), policy, sampling, range(most))
        yield entered([one for one in asked if one.rollout < drawn[one.problem_id]], Rollouts.schema, entries)
