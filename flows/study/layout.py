"""How a study's work lies on the GPUs that are here. Changes nothing in what is made."""

from __future__ import annotations

from dataclasses import replace

from flows.study.profile import Profile
from tasks.engines.hardware import Hardware

#: Of an arm's GPUs, one in so many trains where both have their own: a step samples three times as long as it trains,
#: measured with a mixture of 30B parameters and the published lengths.
TRAINS = 4


def side_by_side(profile: Profile) -> int:
    """Arms, or arms and seeds, that `hardware.arms_at_once` allows at once."""
    more = profile.hardware.arms_at_once > len(profile.arms)
    return len(profile.arms) * (max(1, len(profile.seeds)) if more else 1)


def spread(hardware: Hardware, gpus: int, jobs: int) -> Hardware:
    """What the arms at once leave over of `gpus` goes to each alike: to sampling replicas, and to the learner's
    processes, neither of which get fewer than they were given. jobs: that could be done at once. As given on a CPU, and
    with too few for one arm.

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


def told(hardware: Hardware, gpus: int) -> str:
    """For the plan; empty where nothing was shared out. gpus: that are here.

    >>> told(spread(Hardware(device="cuda", engine_process="core", sampler_apart=True, spread=True), 4, 2), 4)
    'GPUs: 4 here; one arm at once, 4 each: 1 to train, 3 to sample'
    """
    if not hardware.spread or hardware.device == "cpu" or 0 < gpus < hardware.gpus:
        return ""
    arms = "one arm" if hardware.arms_at_once == 1 else f"{hardware.arms_at_once} arms"
    sampling = hardware.replicas * hardware.tensor_parallel
    parts = f"{hardware.processes} to train, {sampling} to sample"
    engines = f", {hardware.tensor_parallel} an engine" if hardware.tensor_parallel > 1 else ""
    return (
        f"GPUs: {gpus or 'none'} here; {arms} at once, {hardware.gpus} each:"
        f" {parts if hardware.sampler_apart else 'all of them to train and to sample'}{engines}"
    )
