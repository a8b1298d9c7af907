"""What a study's models take of GPUs, host memory and the disk, known before anything is loaded, and paid for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    check_fp8,
    check_gpus,
    check_kv_cache,
    compute_capability,
    engine_name,
    gpu_bytes,
    merges_adapters,
    num_gpus,
)
from tasks.engines.memory import (
    GIB,
    TrainingPlan,
    check_host_memory,
    check_sampler_memory,
    check_training_memory,
    checkpoint_bytes,
    disk_bytes,
    execution_on,
    plan_training,
    sampler_bytes,
)
from tasks.engines.model_files import loaded_bytes, num_experts, read_config

#: Of what a GPU has the driver and the libraries keep some for themselves.
_USABLE = 0.98


@dataclass(frozen=True, slots=True)
class Machine:
    """Its GPUs, bytes of one, and of host memory that is free. gpu: 0 where there is none, or it does not say."""

    gpus: int
    gpu: int
    host: int


def this_machine() -> Machine:
    return Machine(num_gpus(), gpu_bytes(), psutil.virtual_memory().available)


def check_memory(study: Study, machine: Machine) -> None:
    """Errors: UserError for too few GPUs, and for what does not fit onto one, of any model that is here."""
    hardware = study.profile.hardware
    if hardware.device != "cuda" or hardware.engine not in ("auto", "vllm"):
        return
    if machine.gpus:
        check_gpus(hardware, machine.gpus)
    if not machine.gpu:
        return
    for base, rank, learners in _models(study):
        config, width = read_config(base), hardware.bytes_per_value
        check_sampler_memory(base, hardware, rank, machine.gpu)
        for learner in learners:
            check_training_memory(base, learner, execution_on(hardware, config), 2, _left(hardware, machine))
        if rank and merges_adapters(config, hardware):
            check_host_memory(base, machine.host, width, *_on_host(hardware, base, learners), _fewer(hardware))


def check_caches(hardware: Hardware, asked: Iterable[Sampling]) -> None:
    """asked: of what is to be sampled here. Errors: UserError where the engine that is here, or the GPU, stores keys
    and values in another way."""
    if "fp8" in {sampling.kv_cache for sampling in asked}:
        check_kv_cache("fp8", engine_name(hardware.engine), hardware.device)
        check_fp8(compute_capability())


def told(study: Study, machine: Machine, asked: Iterable[Sampling] = ()) -> list[str]:
    """For the plan: a line a model that is here, and what this machine would refuse. asked: of what is sampled."""
    hardware, found = study.profile.hardware, list[str]()
    try:
        check_caches(hardware, asked)
    except UserError as refused:
        return [f"this machine would refuse it: {refused}"]
    if hardware.device != "cuda" or hardware.engine not in ("auto", "vllm"):
        return found
    try:
        for base, rank, learners in _models(study):
            found.append(_told(hardware, base, learners, machine, rank))
        check_memory(study, machine)
    except UserError as refused:
        found.append(f"this machine would refuse it: {refused}")
    return found


def _told(hardware: Hardware, base: Path, learners: Sequence[LearnerConfig], machine: Machine, rank: int) -> str:
    """Of several trainings what takes most. rank: of the adapters that are served."""
    config, width = read_config(base), hardware.bytes_per_value
    needed = sampler_bytes(base, hardware, rank)
    said = f"memory of {base.name}: sampling {(needed.total - needed.cache) / GIB:.1f} GiB of a GPU beside its cache"
    if learners:
        free = _left(hardware, machine) if machine.gpu else None
        execution = execution_on(hardware, config)
        plans = [plan_training(base, learner, execution, 2, free) for learner in learners]
        plan = max(plans, key=lambda plan: (-plan.kept_rows, plan.bytes))
        said += f", training {plan.bytes / GIB:.1f} {_recomputed(plan)}"
        said += f" and {max(disk_bytes(base, learner, execution) for learner in learners) / GIB:.1f} of the disk"
    if rank and merges_adapters(config, hardware) and num_experts(config):
        copies, checkpoints = _on_host(hardware, base, learners)
        said += f", {(copies * loaded_bytes(base, width) + checkpoints) / GIB:.1f} of host memory"
    return said


def usable(gpu: int) -> int:
    """Bytes of a GPU of so many."""
    return int(_USABLE * gpu)


def _recomputed(plan: TrainingPlan) -> str:
    if plan.kept_rows >= plan.largest:
        return "without recomputation"
    packs = f" of packs of more than {plan.kept_rows:,} tokens" if plan.kept_rows else ""
    return f"with recomputation{packs}"


def _models(study: Study) -> Iterable[tuple[Path, int, list[LearnerConfig]]]:
    """(folder, rank of the adapters that are served, what it is trained by; empty where it is evaluated alone) of each
    base that is here."""
    trained: dict[str, list[LearnerConfig]] = {model.sha256: [] for model in study.models.values()}
    for head in study.profile.heads(study.profile.arms):
        trained[study.models[head].sha256] += trainings(study.profile, head)
    for sha256, learners in trained.items():
        if sha256 in study.places:
            yield study.places[sha256], study.served[sha256], learners


def _left(hardware: Hardware, machine: Machine) -> int:
    """Return the bytes of a GPU that the learner may take."""
    return usable(machine.gpu) - int((1 - hardware.learner_share) * machine.gpu)


def _on_host(hardware: Hardware, base: Path, learners: Sequence[LearnerConfig]) -> tuple[int, int]:
    """(copies of a mixture's base, bytes of checkpoints) in host memory, by the arms at once."""
    copies = hardware.replicas + (hardware.processes if learners else 0)
    checkpoints = max((checkpoint_bytes(base, learner) for learner in learners), default=0)
    return hardware.arms_at_once * copies, hardware.arms_at_once * checkpoints


def _fewer(hardware: Hardware) -> list[str]:
    """Settings under which there are fewer copies in host memory."""
    at_once = ["hardware.arms_at_once=1"] if hardware.arms_at_once > 1 else []
    more = hardware.spread and hardware.replicas + hardware.processes > 2
    return at_once + (["hardware.spread=false"] if more else [])
