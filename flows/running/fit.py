"""Whether prompts fit the context and adapters the disk, known before anything is paid for."""

from __future__ import annotations

import hashlib
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flows.running.plan import SAMPLED, Planned
from flows.study.resolve import Study
from flows.study.sizes import problems_before_checks
from storage.artifacts.kinds import Benchmark, Pool, Splits
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.policies import Policy, Sampling
from tasks.domain.problems.problems import problem_id
from tasks.domain.problems.splits import of_split
from tasks.engines.hardware import num_gpus
from tasks.engines.memory import disk_bytes, execution_on, kept_bytes, readable
from tasks.engines.model_files import read_config
from tasks.engines.sampling.prompts import loaded_tokenizer, longest_prompt

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Longest:
    """tokens: of the arm's longest prompt. source_id: its problem. needed: tokens with the longest completion. mean: of
    all prompts among which it is the longest."""

    arm: str
    tokens: int
    source_id: str
    needed: int
    mean: float


def longest_prompts(study: Study, store: Store, planned: Sequence[Planned]) -> list[Longest]:
    """Of what is to be sampled here, by arm, on models whose tokenizer is here. Before a pool is built its files
    stand for it.

    Errors: UserError for an arm whose model has no chat template.
    """
    steps = {p.step.ref: p.step.arguments for p in planned}
    asked: dict[tuple[Path, Policy, Pool, Splits | Benchmark, str | None], int] = defaultdict(int)
    for policy, sampling, *problems in _to_sample(planned):
        if folder := study.places.get(policy.model.sha256):
            start = Policy(arm=policy.arm, model=policy.model, scaffold=policy.scaffold)
            key = (folder, start, *problems)
            asked[key] = max(asked[key], sampling.max_tokens)  # type: ignore[index]
    found: dict[str, Longest] = {}
    load = cache(loaded_tokenizer)
    for (folder, policy, pool, splits, split), max_tokens in asked.items():
        rows = _rows(study, store, steps, pool, splits, split)
        if not rows or (tokenizer := load(folder)) is None:
            continue
        place, tokens, mean = longest_prompt(tokenizer, policy.scaffold, [row["problem"] for row in rows])
        one = Longest(policy.arm, tokens, rows[place]["source_id"], tokens + max_tokens, mean)
        found[one.arm] = max(one, found.get(one.arm, one), key=lambda one: one.needed)
    return list(found.values())


def summary(longest: Sequence[Longest], max_model_len: int) -> str:
    """
    >>> summary([Longest("panel", 1373, "aime24__3", 2397, 900.5)], 3072)
    'longest prompts: panel 1,373 tokens; with max_tokens at most 2,397 of hardware.max_model_len=3072'
    """
    if not longest:
        return ""
    each = ", ".join(f"{one.arm} {one.tokens:,} tokens" for one in longest)
    most = max(one.needed for one in longest)
    return f"longest prompts: {each}; with max_tokens at most {most:,} of hardware.max_model_len={max_model_len}"


def check_fit(longest: Sequence[Longest], max_model_len: int) -> None:
    """Errors: UserError if a prompt and its completion do not fit."""
    if over := [one for one in longest if one.needed > max_model_len]:
        most = max(over, key=lambda one: one.needed)
        raise UserError(
            f"arm {most.arm}: the prompt of problem {most.source_id} has {most.tokens} tokens and its completion may"
            f" have {most.needed - most.tokens}, which do not fit hardware.max_model_len={max_model_len}; set it to"
            f" {most.needed}, or lower max_tokens"
        )


def _to_sample(planned: Sequence[Planned]) -> Iterator[tuple[Any, ...]]:
    """(policy, sampling, pool, splits, split) of what is not there."""
    kinds = SAMPLED | {"searches"}
    for given in (p.step.arguments for p in planned if p.made_here and p.step.ref.kind in kinds):
        if "learner" in given:
            yield given["start"], given["rollouts"], given["pool"], given["splits"], "train"
            if given["evaluation_group_size"]:
                yield given["start"], given["evaluation"], given["pool"], given["splits"], "heldout"
        elif "policy" in given and isinstance(given.get("sampling"), Sampling):
            yield given["policy"], given["sampling"], given["pool"], given["splits"], given["split"]


def _rows(
    study: Study,
    store: Store,
    steps: Mapping[Ref, Mapping[str, Any]],
    pool: Pool,
    splits: Splits | Benchmark,
    split: str | None,
) -> Rows:
    if store.fresh(pool):
        table = store.read(pool, ["problem_id", "source_id", "problem", "level"])
        if store.fresh(splits):
            return of_split(table, store.read(splits, ["problem_id", "split"]), split).to_pylist()
        rows: Rows = table.to_pylist()
    else:
        rows = problems_before_checks(steps[pool], study.places) or []
    return _drawn(rows, steps[splits]) if isinstance(splits, Benchmark) else rows


def _drawn(rows: Rows, choice: Mapping[str, Any]) -> Rows:
    """The problems that a benchmark asks, as choose_benchmark draws them where none is left out."""
    levels, per_level, ranked = choice["levels"], choice["per_level"], defaultdict(list)
    for row in rows:
        if not levels or row["level"] in levels:
            order = hashlib.sha256(f"{choice['seed']}:{problem_id(row['problem'])}".encode()).hexdigest()
            ranked[row["level"]].append((order, row))
    return [row for of_level in ranked.values() for _, row in sorted(of_level, key=lambda one: one[0])[:per_level]]


def check_room(study: Study, store: Store, planned: Sequence[Planned]) -> None:
    """Of trainings that are to be made here and whose base is: what all of them keep, and what those at once have on
    its way beside that. What a training that was begun has written is written over.

    Errors: UserError where that is more than there is room for.
    """
    hardware, kept, on_its_way, held, arms = study.profile.hardware, 0, 0, 0, set[object]()
    for one in planned:
        given = one.step.arguments
        if not one.made_here or one.step.ref.kind != "training" or "learner" not in given:
            continue
        if (base := study.places.get(given["start"].model.sha256)) is None:
            continue
        learner, execution = given["learner"], execution_on(hardware, read_config(base))
        kept += (stays := kept_bytes(base, learner))
        on_its_way = max(on_its_way, disk_bytes(base, learner, execution) - stays)
        begun = store.root / ".work" / str(one.step.ref)
        held += sum(file.stat().st_size for file in begun.rglob("*") if file.is_file())
        arms.add((given["start"].arm, learner.seed))
    at_once = min(hardware.arms_at_once, len(arms))
    needed = kept + at_once * on_its_way
    there = next(folder for folder in (store.root, *store.root.absolute().parents) if folder.is_dir())
    room = held + shutil.disk_usage(there).free
    if needed > room:
        several = f"{at_once} at once" if at_once > 1 else "one"
        fewer = "fewer arms at once (hardware.arms_at_once), " if at_once > 1 else ""
        raise UserError(
            f"{there}: trainings keep {readable(kept)} of adapters there, beside {readable(at_once * on_its_way)}"
            f" of {several} on the way, and there is room for {readable(room)};"
            f" make room, or take {fewer}fewer adapters (training.eval_every) or a smaller lora_rank"
        )


def told(study: Study, store: Store, planned: Sequence[Planned]) -> str:
    """For the plan; empty where all of it has room, and on a machine without the GPUs that it is to be made on."""
    if study.profile.hardware.device == "cuda" and not num_gpus():
        return ""
    try:
        check_room(study, store, planned)
    except UserError as refused:
        return f"this machine would refuse it: {refused}"
    return ""
