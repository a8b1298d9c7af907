"""How a study's work is divided among this machine's GPUs: GPUs per engine, engines, learner processes, and the
adapters that engines serve. Results do not depend on the machine."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from flows.study.profile import Profile
from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import BaseModel
from tasks.engines.hardware import SAME_BITS, Hardware
from tasks.engines.model_checks import check_parallel, check_sampler_memory


def trainings(profile: Profile, head: str) -> list[LearnerConfig]:
    """Return the trainings of an arm: its lessons, its main training, and one for each objective."""
    lessons = [lesson.training for lesson in profile.lessons if head in lesson.arms]
    return lessons + ([profile.training, *(one.training for one in profile.objectives)] if profile.seeds else [])


def served_ranks(profile: Profile, models: Mapping[str, BaseModel], elsewhere: Mapping[str, int]) -> dict[str, int]:
    """Return the largest rank of the adapters that are served on each base model, by the model's hash; 0 for none.
    models: by arm. elsewhere: ranks of existing adapters, by the base model's hash."""
    found = {model.sha256: elsewhere.get(model.sha256, 0) for model in models.values()}
    for head in profile.heads(profile.arms):
        base = models[head].sha256
        found[base] = max([found[base], *(learner.lora_rank for learner in trainings(profile, head))])
    return found


def enough_gpus(hardware: Hardware, bases: Mapping[Path, int], gpus: int, gpu: int) -> Hardware:
    """Return the hardware. With `spread`, `tensor_parallel` is doubled until all base models fit.

    The number of GPUs per engine stays as small as possible, because several engines with one GPU each are faster than
    one engine with several. If the GPUs are unknown or too few, the hardware is unchanged, and the memory plan reports
    the problem. bases: folders of base models, with the largest rank of served adapters. gpus: number, of `gpu` bytes
    each.
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
    except UserError:  # raised again where the model is checked
        return False
    return True


#: If sampler and learner have their own GPUs, one in this many GPUs of an arm trains. Sampling takes three times as
#: long as training (measured with a 30B mixture and the published lengths).
TRAINS = 4


def side_by_side(profile: Profile) -> int:
    """Return how many pieces may run in parallel: one per arm, or per arm and seed if `hardware.arms_at_once` allows
    more."""
    more = profile.hardware.arms_at_once > len(profile.arms)
    return len(profile.arms) * (max(1, len(profile.seeds)) if more else 1)


def spread(hardware: Hardware, gpus: int, jobs: int) -> Hardware:
    """Divide the GPUs beyond the minimum equally among parallel arms, as sampling replicas and learner processes. On a
    CPU, or with too few GPUs for one arm, the hardware is unchanged. jobs: number that could run in parallel.

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
    """Return the plan's line about this machine's GPUs; empty on a CPU, and with a Tinker service. gpus: number.

    >>> apart = Hardware(device="cuda", engine_process="core", sampler_apart=True, spread=True)
    >>> gpus_line(spread(apart, 4, 2), 4).rpartition(";")[0]
    'GPUs: 4 here; arms at once: 1, of 4 each: 1 to train, 3 to sample'
    >>> gpus_line(Hardware(device="cuda", tensor_parallel=8), 4)
    'GPUs: 4 here, 8 for an arm; an arm spans no second machine (docs/guide/cluster.md)'
    >>> gpus_line(Hardware(device="cuda", engine="tinker"), 4)
    ''
    """
    if hardware.device == "cpu" or hardware.engine == "tinker":
        return ""
    if not (gpus or hardware.spread or hardware.device == "cuda"):
        return ""
    line = f"GPUs: {gpus or 'none'} here"
    if hardware.spread and not 0 < gpus < hardware.gpus:
        parts = f"{hardware.processes} to train, {hardware.replicas * hardware.tensor_parallel} to sample"
        shared = parts if hardware.sampler_apart else "all of them to train and to sample"
        line += f"; arms at once: {hardware.arms_at_once}, of {hardware.gpus} each: {shared}"
    else:
        line += f", {hardware.gpus} for an arm"
    if hardware.determinism == "bits":
        line += f"; `determinism = bits` takes about {SAME_BITS} times as long"
    return f"{line}; an arm spans no second machine (docs/guide/cluster.md)"
