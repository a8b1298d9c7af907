"""GPU memory, host memory and disk space of a study's models, checked before anything is loaded or paid for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from flows.study.layout import trainings
from flows.study.resolve import Study
from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import Sampling
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
from tasks.engines.model_files import read_config

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
