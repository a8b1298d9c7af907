"""What a training of the 30B mixture takes by number of GPUs: seconds, hours, money, and memory by the plan."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.random_mixture import CONFIG, named_shapes
from benchmarks.thirty_b_lengths import alone, by_rollouts, mean_interval, shared_out
from flows.experiment import experiment
from flows.running.costs import costs, total
from flows.running.plan import plan
from flows.study.engine_gpus import sampler_bytes
from flows.study.layout import spread
from flows.study.memory import usable
from flows.study.prices import prices_of
from flows.study.profiles import PAPER
from flows.study.request import Request
from storage.artifacts.store import Store
from tasks.engines.learning.memory_plan import GIB
from tasks.engines.learning.policy import execution_on
from tasks.engines.learning.training_memory import plan_training
from tests.hollow import hollow_weights

STEPS = 100
#: Of the published training, in seconds.
PUBLISHED_STEP = 94
#: Of one H200.
GPU_GIB = 140


@dataclass(frozen=True, slots=True)
class Row:
    """A way to use GPUs. sample_N, train_N, rest_N: seconds of each of steps 2 to 5."""

    gpus: int
    arms: int
    learners: int
    engines: int
    sample_N: np.ndarray
    train_N: np.ndarray
    rest_N: np.ndarray
    how: str

    @property
    def step_N(self) -> np.ndarray:
        return self.sample_N + self.train_N + self.rest_N


@dataclass(frozen=True, slots=True)
class Planned:
    """GiB of a GPU, as the plan of a study counts them. sampler: beside its cache. learner: on a GPU of its own; least:
    if it recomputes every layer. kept_rows: tokens of the largest pack of which it recomputes none."""

    sampler: float
    learner: float
    least: float
    kept_rows: int


def two_gain(known: dict[str, Any]) -> float:
    """How many times faster two processes of the learner are than one; the first step compiles."""
    return median(known["train"]["1"][1:]) / median(known["train"]["2"][1:])


def rows_of(known: dict[str, Any], lengths: list[np.ndarray]) -> list[Row]:
    steps = known["steps"]["rows"][1:]
    ms = by_rollouts(known["positions"]["ms"])
    sample_N, train_N, wall_N = (np.array([step[name] for step in steps]) for name in ("generate", "train", "wall"))
    over = float(np.mean(sample_N - [alone(own, ms) for own in lengths[1:]]))
    found = []
    for gpus in (2, 4, 8):
        laid = spread(PAPER.hardware, gpus, 2)
        if laid.replicas == 1:
            own_N, how = sample_N, "measured" if gpus == 2 else "as measured on two"
        else:
            own_N, how = over + np.array([shared_out(own, laid.replicas, ms) for own in lengths[1:]]), "computed"
        faster = 1.0 if laid.processes == 1 else two_gain(known["learner"]) * laid.processes / 2
        rest_N = wall_N - sample_N - train_N
        found.append(Row(gpus, laid.arms_at_once, laid.processes, laid.replicas, own_N, train_N / faster, rest_N, how))
    return found


def planned() -> Planned:
    """Of files as large as the model's, of which nothing is written."""
    hardware, learner = PAPER.hardware, PAPER.training
    with tempfile.TemporaryDirectory() as made:
        base = Path(made)
        (base / "config.json").write_text(json.dumps(CONFIG))
        values = sum(rows * (columns or 1) for _, (rows, columns) in named_shapes(CONFIG))
        hollow_weights(base / "model.safetensors", values)
        execution = execution_on(hardware, CONFIG)
        sampler = sampler_bytes(hardware, base, learner.lora_rank)
        apart, least = (
            plan_training(base, learner, replace(execution, checkpointing=how), 2, usable(GPU_GIB * GIB), gpu=True)
            for how in ("auto", "on")
        )
    return Planned(sampler / GIB, apart.bytes / GIB, least.bytes / GIB, apart.kept_rows)


def price_of_paper() -> tuple[float, float]:
    """(GPU-hours, US$) of the profile, as its plan has it, where nothing is made and no model is here."""
    with tempfile.TemporaryDirectory() as root:
        store = Store(Path(root))
        store.prepare()
        study = Request(profile="paper").study(store, planning=True)
        found = total(costs(study, store, plan(study, store, experiment), prices_of("paper")))
    return found.gpu_hours, found.usd or 0.0


def table(known: dict[str, Any], lengths: list[np.ndarray], price: float) -> list[str]:
    """price: US$ a GPU and hour."""
    memory = planned()
    out = [
        "| GPUs | arms at once | learners, engines an arm | sample | train | in all | | two trainings like the panel's, h | US$ |",
        "|---|---|---|---|---|---|---|---|---|",
        f"| 1 | – | – | – | – | – | does not fit: by the plan {memory.sampler:.1f} GiB of the sampler without its cache, beside {memory.least:.1f}"
        f" of a learner that recomputes every layer, of {GPU_GIB}; refused before anything is loaded | – | – |",
    ]
    for row in rows_of(known, lengths):
        mean, *ends = mean_interval(row.step_N)
        hours = STEPS * 2 / row.arms / 3600
        paid = hours * row.gpus * price
        out.append(
            f"| {row.gpus} | {row.arms} | {row.learners}, {row.engines} | {row.sample_N.mean():.1f} | {row.train_N.mean():.1f} | {_with([mean, *ends], 1, '.1f')} | {row.how}"
            f" | {_with([mean, *ends], hours, '.1f')} | {_with([mean, *ends], paid, '.0f')} |"
        )
    hours = PUBLISHED_STEP * STEPS * 2 / 3600
    out += [
        f"| published, hosted | | | | | {PUBLISHED_STEP} | as its files say of the panel | {hours:.1f} | not said |",
        "",
        f"In brackets: 95 % intervals of the mean of four steps. The sampler's memory is the plan's and was not measured apart from its cache. A learner on a GPU of its own is planned to take {memory.learner:.1f} GiB;"
        f" measured were {known['steps']['rows'][1]['trainer_gib']:.0f}, and {max(step['trainer_gib'] for step in known['steps']['rows']):.0f} where a rollout is longer than packs are to be.",
    ]
    return out


def _with(mean_and_ends: list[float], times: float, spec: str) -> str:
    mean, low, high = (format(value * times, spec) for value in mean_and_ends)
    return f"{mean} [{low}, {high}]"
