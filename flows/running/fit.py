"""Checks before anything is spent: prompts fit the context, models fit the memory of this machine, and a Tinker service
trains the study's kind of adapter."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Self

import psutil

from flows.running.plan import Planned, sampled_here
from flows.study.machine import trainings
from flows.study.resolve import Study
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import Benchmark, Pool, Splits
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import Policy, Sampling
from tasks.domain.problems.arithmetic import demo_problems
from tasks.domain.problems.problems import PoolPolicy, of_split, problem_id
from tasks.domain.problems.sources import SOURCES, SourceSpec
from tasks.domain.scaffolds import PROBLEM, Scaffold
from tasks.engines.hardware import check_gpus, check_kv_cache, engine_name, gpu_bytes, merges_adapters, num_gpus
from tasks.engines.model_checks import (
    GIB,
    check_host_memory,
    check_sampler_memory,
    check_training_memory,
    checkpoint_bytes,
    execution_on,
    plan_training,
    sampler_bytes,
)
from tasks.engines.model_files import names_of, read_config
from tasks.engines.problem_files import Row, load_problems
from tasks.engines.sampling.prompts import default_system_prompt, encode_prompt, loaded_tokenizer, longest_prompt
from tasks.engines.tinker_service import Service


@dataclass(frozen=True, slots=True)
class Longest:
    """The longest prompt of an arm: tokens and problem. needed: tokens with the longest completion. mean: of all
    prompts."""

    arm: str
    tokens: int
    source_id: str
    needed: int
    mean: float


def longest_prompts(study: Study, store: Store, planned: Sequence[Planned]) -> list[Longest]:
    """Return the longest prompt of each arm that is sampled here with a model whose tokenizer is available. If a pool
    does not exist yet, read the problems from its files. Raise UserError for a model without a chat template."""
    steps = {p.step.ref: p.step.arguments for p in planned}
    wanted: dict[tuple[Path, Policy, Pool, Splits | Benchmark, str | None], int] = defaultdict(int)
    for policy, sampling, *problems in sampled_here(planned):
        if folder := study.places.get(policy.model.sha256):
            start = Policy(arm=policy.arm, model=policy.model, scaffold=policy.scaffold)
            key = (folder, start, *problems)
            wanted[key] = max(wanted[key], sampling.max_tokens)  # type: ignore[index]
    found: dict[str, Longest] = {}
    load = cache(loaded_tokenizer)
    for (folder, policy, pool, splits, split), max_tokens in wanted.items():
        rows = _rows(study, store, steps, pool, splits, split)
        if not rows or (tokenizer := load(folder)) is None:
            continue
        place, tokens, mean = longest_prompt(tokenizer, policy.scaffold, [row["problem"] for row in rows])
        one = Longest(policy.arm, tokens, rows[place]["source_id"], tokens + max_tokens, mean)
        found[one.arm] = max(one, found.get(one.arm, one), key=lambda one: one.needed)
    return list(found.values())


def _rows(
    study: Study,
    store: Store,
    steps: Mapping[Ref, Mapping[str, Any]],
    pool: Pool,
    splits: Splits | Benchmark,
    split: str | None,
) -> Sequence[Row]:
    """Return the problems of a split. If the pool or the choice does not exist yet, return all candidates."""
    if store.fresh(pool):
        table = store.read(pool, ["problem_id", "source_id", "problem", "level"])
        if store.fresh(splits):
            return of_split(table, store.read(splits, ["problem_id", "split"]), split).to_pylist()
        rows: Sequence[Row] = table.to_pylist()
    else:
        rows = [row for row in problems_before_checks(steps[pool], study.places) if row["source_id"]]
    levels = steps[splits]["levels"] if isinstance(splits, Benchmark) else ()
    return [row for row in rows if not levels or row["level"] in levels]


@dataclass(frozen=True, slots=True)
class ArmPrompt:
    """A prompt as an arm's model gets it: decoded tokens, with special tokens as text. default_system: whether the chat
    template adds a system prompt of its own."""

    arm: str
    scaffold: Scaffold
    text: str
    tokens: int
    default_system: bool


def arm_prompts(study: Study, store: Store, planned: Sequence[Planned], problem: str | None) -> Iterator[ArmPrompt]:
    """Yield each arm's prompt for one problem of the study's pool. Raise UserError for an unknown problem, or for an
    arm whose tokenizer is not on this machine. problem: source_id, or beginning of the problem_id; the first one if
    None.
    """
    build = next(p.step for p in planned if p.step.ref.kind == "pool")
    rows = [row for row in problems_before_checks(build.arguments, study.places) if row["source_id"]]
    chosen = [
        row["problem"]
        for row in rows
        if problem is None or row["source_id"] == problem or problem_id(row["problem"]).startswith(problem)
    ]
    if problem is not None and not chosen:
        raise UserError(f"none of the pool's {len(rows)} problems is '{problem}'; give a source_id or problem_id")
    for arm in map(study.profile.arm, study.profile.arms):
        model, scaffold = study.models[arm.name], arm.scaffold
        folder = study.places.get(model.sha256)
        if folder is None or (tokenizer := loaded_tokenizer(folder)) is None:
            raise UserError(f"arm {arm.name}: the tokenizer of {model.name} is not on this machine")
        ids = encode_prompt(tokenizer, scaffold, chosen[0] if chosen else PROBLEM)
        default = scaffold.chat and scaffold.system is None and default_system_prompt(tokenizer)
        yield ArmPrompt(arm.name, scaffold, tokenizer.decode(ids), len(ids), default)


def prompt_lines(study: Study, store: Store, planned: Sequence[Planned]) -> Iterator[str]:
    """Yield a line with the longest prompts. Raise UserError if a prompt and its completion exceed the context."""
    limit, longest = study.profile.hardware.max_model_len, longest_prompts(study, store, planned)
    if not longest:
        return
    each, most = ", ".join(f"{x.arm} {x.tokens:,} tokens" for x in longest), max(longest, key=lambda one: one.needed)
    yield f"longest prompts: {each}; with max_tokens at most {most.needed:,} of hardware.max_model_len={limit}"
    if most.needed > limit:
        raise UserError(
            f"arm {most.arm}: the prompt of problem {most.source_id} has {most.tokens} tokens and its completion may"
            f" have {most.needed - most.tokens}; together this is more than hardware.max_model_len={limit}. Set"
            f" hardware.max_model_len={most.needed}, or lower max_tokens"
        )


def error_as_line(lines: Iterator[str], who: str) -> Iterator[str]:
    """Yield the lines. If the lines raise an error, yield the error as a line of the plan."""
    try:
        yield from lines
    except UserError as refused:
        yield f"{who} would refuse it: {refused}"


# ---- problems of a pool that does not exist yet: the rows of its files
#
# A named set that is not on this machine has as many problems as were published, but without texts.

#: Number of difficulty levels. In a set that is not on this machine, all levels have equally many problems.
LEVELS = 5


def problems_before_checks(given: Mapping[str, Any], places: Mapping[str, Path]) -> Sequence[Row]:
    """Return the problems of a pool that does not exist yet, before its golds are checked. Problems of a set on another
    machine have an empty source_id; an unknown set has no problems. given: arguments of the pool's stage."""
    if "per_source" in given:
        return demo_problems(given["per_source"], given["seed"], given["levels"])
    return _pool_rows(tuple((spec, places.get(spec.sha256)) for spec in given["sources"]), given["policy"])


@lru_cache(maxsize=16)
def _pool_rows(files: tuple[tuple[SourceSpec, Path | None], ...], policy: PoolPolicy) -> Sequence[Row]:
    rows = load_problems((path, spec.name, spec.only) for spec, path in files if path)
    for name in (spec.name for spec, path in files if path is None and spec.name in SOURCES):
        unseen = {"source": name, "source_id": "", "gold": ""}
        published = range(SOURCES[name].problems)
        rows += [unseen | {"problem": f"{name} {n}", "level": str(1 + n % LEVELS)} for n in published]
    once: dict[str, Row] = {}
    for row in rows:
        once.setdefault(problem_id(row["problem"]), row)
    return policy.in_pool_order([*once.values()])[: policy.limit]


def check_service(study: Study, planned: Sequence[Planned]) -> None:
    """Raise UserError, before sampling, if a Tinker service trains with another LoRA alpha than the study."""
    hardware = study.profile.hardware
    todo = [p.step.arguments for p in planned if p.made_here]
    if hardware.engine == "tinker" and any("policy" in given and "sampling" in given for given in todo):
        trained = {given["start"].model.sha256: given["learner"] for given in todo if "learner" in given}
        for sha256, learner in trained.items():
            if (folder := study.places.get(sha256)) is not None:
                Service(names_of(folder), hardware.served_model).check_alpha(learner)


# ---- GPU and host memory for a study's models

#: Share of a GPU's memory that can be used. The driver and libraries take the rest.
_USABLE = 0.98


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: its GPUs, the bytes of one GPU, and the free bytes of host memory. gpu: 0 if none or unknown."""

    gpus: int
    gpu: int
    host: int

    @classmethod
    def here(cls) -> Self:
        return cls(num_gpus(), gpu_bytes(), psutil.virtual_memory().available)


def memory_lines(study: Study, machine: Machine, samplings: Iterable[Sampling] = ()) -> Iterator[str]:
    """Yield a line for each local model: the memory that it takes on a GPU. Raise UserError for too few GPUs, for a
    model that is too large for a GPU or the host, and for a KV cache that this engine or GPU does not support.
    samplings: those on this machine."""
    hardware = study.profile.hardware
    if "fp8" in {sampling.kv_cache for sampling in samplings}:
        check_kv_cache("fp8", engine_name(hardware.engine), hardware.device)
    if hardware.device != "cuda" or hardware.engine not in ("auto", "vllm"):
        return
    if machine.gpus:
        check_gpus(hardware, machine.gpus)
    usable = _USABLE - 1 + hardware.learner_share
    for base, rank, learners in _models(study):
        config, needed = read_config(base), sampler_bytes(base, hardware, rank)
        execution, free = execution_on(hardware, config), int(usable * machine.gpu) if machine.gpu else None
        line = f"memory of {base.name}: sampling {(needed.weights + needed.merging) / GIB:.1f} GiB of a GPU"
        if learners:
            training = max(plan_training(base, learner, execution, 2, free).bytes for learner in learners)
            line += f", training {training / GIB:.1f}"
        yield line
        if free is None:
            continue
        check_sampler_memory(base, hardware, rank, machine.gpu)
        for learner in learners:
            check_training_memory(base, learner, execution, 2, free)
        if rank and merges_adapters(config, hardware):
            copies = hardware.replicas + (hardware.processes if learners else 0)
            checkpoints = max((checkpoint_bytes(base, learner) for learner in learners), default=0)
            arms = hardware.arms_at_once
            check_host_memory(base, machine.host, hardware.bytes_per_value, arms * copies, arms * checkpoints)


def _models(study: Study) -> Iterator[tuple[Path, int, list[LearnerConfig]]]:
    """Yield (folder, rank of served adapters, how it is trained) of each local base model; the last may be empty."""
    trained: dict[str, list[LearnerConfig]] = {model.sha256: [] for model in study.models.values()}
    for head in study.profile.heads(study.profile.arms):
        trained[study.models[head].sha256] += trainings(study.profile, head)
    for sha256, learners in trained.items():
        if sha256 in study.places:
            yield study.places[sha256], study.served[sha256], learners
