"""How a study fits a machine: GPUs per engine, engines, learner processes, served adapters, memory and disk. Results do
not depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from flows.study.profile import Profile
from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import BaseModel, Sampling
from tasks.engines.hardware import (
    Hardware,
    check_gpus,
    check_kv_cache,
    engine_name,
    gpu_bytes,
    merges_adapters,
    num_gpus,
)
from tasks.engines.memory import (
    GIB,
    check_host_memory,
    check_sampler_memory,
    check_training_memory,
    checkpoint_bytes,
    disk_bytes,
    execution_on,
    plan_training,
    sampler_bytes,
)
from tasks.engines.model_checks import check_parallel
from tasks.engines.model_files import read_config

if TYPE_CHECKING:
    from flows.study.resolve import Study


def trainings(profile: Profile, head: str) -> list[LearnerConfig]:
    """The trainings of an arm: its lessons, its main one, and one per objective."""
    lessons = [lesson.training for lesson in profile.lessons if head in lesson.arms]
    return lessons + ([profile.training, *(one.training for one in profile.objectives)] if profile.seeds else [])


def served_ranks(profile: Profile, models: Mapping[str, BaseModel], elsewhere: Mapping[str, int]) -> dict[str, int]:
    """Return the largest rank of the adapters served on each base model, by the model's digest; 0 if none is. models:
    keyed by arm. elsewhere: ranks of existing adapters, by digest of the base."""
    found = {model.sha256: elsewhere.get(model.sha256, 0) for model in models.values()}
    for head in profile.heads(profile.arms):
        base = models[head].sha256
        found[base] = max([found[base], *(learner.lora_rank for learner in trainings(profile, head))])
    return found


def enough_gpus(hardware: Hardware, bases: Mapping[Path, int], gpus: int, gpu: int) -> Hardware:
    """Hardware with `tensor_parallel` as given, or with `spread`, doubled until all bases fit: several engines with one
    GPU each are faster than one engine with several. bases: with the largest rank of their served adapters. gpus:
    number available, of `gpu` bytes each.

    Return it unchanged if the GPUs are unknown or no number suffices; the memory plan then reports the shortage.
    """
    if not hardware.spread or hardware.device == "cpu" or hardware.engine not in ("auto", "vllm") or not gpu:
        return hardware
    for more in (1, 2, 4, 8):
        tried = replace(hardware, tensor_parallel=hardware.tensor_parallel * more)
        if tried.gpus <= gpus and all(_fits(tried, base, rank, gpu) for base, rank in bases.items()):
            return tried
    return hardware


def _fits(hardware: Hardware, base: Path, rank: int, gpu: int) -> bool:
    try:
        check_parallel(base, hardware)
        check_sampler_memory(base, hardware, rank, gpu)
    except UserError:  # shown where the model is checked
        return False
    return True


#: If sampler and learner have GPUs of their own, one in this many of an arm trains: sampling takes three times as long
#: as training, measured with a mixture of 30B parameters and the published lengths.
TRAINS = 4


def side_by_side(profile: Profile) -> int:
    """Arms, or arms and seeds, that `hardware.arms_at_once` allows to run in parallel."""
    more = profile.hardware.arms_at_once > len(profile.arms)
    return len(profile.arms) * (max(1, len(profile.seeds)) if more else 1)


def spread(hardware: Hardware, gpus: int, jobs: int) -> Hardware:
    """Divide the GPUs beyond the minimum equally among parallel arms: to sampling replicas and learner processes, never
    fewer than configured. jobs: number that could run in parallel. Unchanged on a CPU, and with too few GPUs for one
    arm.

    >>> apart = Hardware(device="cuda", engine_process="core", sampler_apart=True, arms_at_once=2, spread=True)
    >>> [(h.arms_at_once, h.processes, h.replicas) for h in (spread(apart, n, 2) for n in (1, 2, 4, 8))]
    [(2, 1, 1), (1, 1, 1), (2, 1, 1), (2, 1, 3)]
    """
    if not hardware.spread or hardware.device == "cpu" or gpus < hardware.gpus:
        return hardware
    at_once = min(hardware.arms_at_once, jobs, gpus // hardware.gpus)
    share, each = gpus // at_once, hardware.tensor_parallel
    if not hardware.sampler_apart:
        return replace(hardware, arms_at_once=at_once, processes=share, replicas=share // each)
    learning = max(hardware.processes, min(share // TRAINS, share - hardware.replicas * each))
    engines = (share - learning) // each
    return replace(hardware, arms_at_once=at_once, processes=share - engines * each, replicas=engines)


def gpus_line(hardware: Hardware, gpus: int) -> str:
    """Say how arms use this machine's GPUs, for the plan; empty on a CPU. gpus: number available.

    >>> gpus_line(spread(Hardware(device="cuda", engine_process="core", sampler_apart=True, spread=True), 4, 2), 4)
    'GPUs: 4 here; arms at once: 1, of 4 each: 1 to train, 3 to sample; an arm spans no second machine'
    >>> gpus_line(Hardware(device="cuda", tensor_parallel=8), 4)
    'GPUs: 4 here, 8 for an arm; an arm spans no second machine'
    """
    if hardware.device == "cpu" or not (gpus or hardware.spread or hardware.device == "cuda"):
        return ""
    line = f"GPUs: {gpus or 'none'} here"
    if hardware.spread and not 0 < gpus < hardware.gpus:
        parts = f"{hardware.processes} to train, {hardware.replicas * hardware.tensor_parallel} to sample"
        shared = parts if hardware.sampler_apart else "all of them to train and to sample"
        line += f"; arms at once: {hardware.arms_at_once}, of {hardware.gpus} each: {shared}"
    else:
        line += f", {hardware.gpus} for an arm"
    return f"{line}; an arm spans no second machine"


# GPU memory, host memory and disk space of a study's models, checked before anything is loaded or paid for.


#: Usable share of a GPU's memory; the driver and libraries take the rest.
_USABLE = 0.98


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine's GPUs, bytes per GPU, and bytes of free host memory. gpu: 0 if none or unknown."""

    gpus: int
    gpu: int
    host: int

    @classmethod
    def here(cls) -> Machine:
        return cls(num_gpus(), gpu_bytes(), psutil.virtual_memory().available)


def check_memory(study: Study, machine: Machine, samplings: Iterable[Sampling] = ()) -> None:
    """samplings: the samplings that run on this machine. Raise UserError for too few GPUs, and for any local model that
    exceeds one; also for the reasons of check_caches."""
    hardware = study.profile.hardware
    check_caches(hardware, samplings)
    if not _on_gpus(study) or not machine.gpus:
        return
    check_gpus(hardware, machine.gpus)
    for base, rank, learners in _models(study) if machine.gpu else ():
        config = read_config(base)
        check_sampler_memory(base, hardware, rank, machine.gpu)
        for learner in learners:
            check_training_memory(base, learner, execution_on(hardware, config), 2, _left(study, machine))
        if rank and merges_adapters(config, hardware):
            copies = hardware.replicas + (hardware.processes if learners else 0)
            checkpoints = max((checkpoint_bytes(base, learner) for learner in learners), default=0)
            arms = hardware.arms_at_once
            check_host_memory(base, machine.host, hardware.bytes_per_value, arms * copies, arms * checkpoints)


def check_caches(hardware: Hardware, samplings: Iterable[Sampling]) -> None:
    """Raise UserError for a key-value cache type that this engine or GPU does not support."""
    if "fp8" in {sampling.kv_cache for sampling in samplings}:
        check_kv_cache("fp8", engine_name(hardware.engine), hardware.device)


def memory_lines(study: Study, machine: Machine, samplings: Iterable[Sampling] = ()) -> list[str]:
    """Return the plan's lines: one per local model, and the reasons for which this machine would refuse the study.
    samplings: the samplings that run on this machine."""
    lines, free = list[str](), _left(study, machine) if machine.gpu else None
    try:
        for base, rank, learners in _models(study) if _on_gpus(study) else ():
            needed = sampler_bytes(base, study.profile.hardware, rank)
            line = f"memory of {base.name}: sampling {(needed.total - needed.cache) / GIB:.1f} GiB of a GPU"
            if learners:
                execution = execution_on(study.profile.hardware, read_config(base))
                training = max(plan_training(base, learner, execution, 2, free).bytes for learner in learners)
                disk = max(disk_bytes(base, learner, execution) for learner in learners)
                line += f", training {training / GIB:.1f} and {disk / GIB:.1f} of the disk"
            lines.append(line)
        check_memory(study, machine, samplings)
    except UserError as refused:
        lines.append(f"this machine would refuse it: {refused}")
    return lines


def _on_gpus(study: Study) -> bool:
    return study.profile.hardware.device == "cuda" and study.profile.hardware.engine in ("auto", "vllm")


def _models(study: Study) -> Iterator[tuple[Path, int, list[LearnerConfig]]]:
    """Yield (folder, rank of served adapters, how it is trained; empty if only evaluated) of each local base model."""
    trained: dict[str, list[LearnerConfig]] = {model.sha256: [] for model in study.models.values()}
    for head in study.profile.heads(study.profile.arms):
        trained[study.models[head].sha256] += trainings(study.profile, head)
    for sha256, learners in trained.items():
        if sha256 in study.places:
            yield study.places[sha256], study.served[sha256], learners


def _left(study: Study, machine: Machine) -> int:
    """Return the bytes of a GPU available to the learner."""
    return int(_USABLE * machine.gpu) - int((1 - study.profile.hardware.learner_share) * machine.gpu)
