"""How a study's work lies on the GPUs that are here: by their number, shown by the plan, part of no name."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from flows.study.layout import enough_gpus, side_by_side, spread
from flows.study.request import Request, profile_named
from storage.artifacts.store import Store
from tasks.engines.memory import GIB, sampler_bytes
from tests.hollow import hollow_weights
from tests.random_mixture import CONFIG
from tests.tiny_model import write_tiny_mixture

PAPER = profile_named("paper")


@pytest.mark.parametrize(
    ("gpus", "arms_at_once", "processes", "replicas"),
    [(0, 2, 1, 1), (1, 2, 1, 1), (2, 1, 1, 1), (3, 1, 1, 2), (4, 2, 1, 1), (8, 2, 1, 3), (16, 2, 2, 6)],
)
def test_the_published_study_on_so_many(gpus: int, arms_at_once: int, processes: int, replicas: int) -> None:
    found = spread(PAPER.hardware, gpus, 2)
    assert (found.arms_at_once, found.processes, found.replicas) == (arms_at_once, processes, replicas)
    assert gpus < 2 or found.arms_at_once * found.gpus <= gpus


def test_where_both_share_a_gpu_each_has_all_of_them() -> None:
    shared = replace(PAPER.hardware, sampler_apart=False)
    found = spread(shared, 8, 2)
    assert (found.arms_at_once, found.processes, found.replicas, found.gpus) == (2, 4, 4, 4)
    two = spread(replace(shared, tensor_parallel=2), 8, 2)
    assert (two.processes, two.replicas, two.gpus) == (4, 2, 4)


@pytest.mark.parametrize(
    ("asked", "gpus", "laid"),
    [
        ({"replicas": 7}, 8, (1, 7)),  # it was two to train and six
        ({"replicas": 2, "tensor_parallel": 3}, 8, (2, 2)),
        ({"processes": 3, "replicas": 2}, 8, (3, 5)),
        ({"tensor_parallel": 4}, 8, (4, 1)),  # of an engine's four a learner can have what is left
        ({"tensor_parallel": 2}, 4, (2, 1)),
    ],
)
def test_neither_gets_fewer_than_was_asked_and_none_is_left(
    asked: dict[str, int], gpus: int, laid: tuple[int, int]
) -> None:
    found = spread(replace(PAPER.hardware, arms_at_once=1, **asked), gpus, 1)
    assert (found.processes, found.replicas) == laid
    assert found.gpus == gpus


def test_nothing_is_shared_out_unasked() -> None:
    assert spread(replace(PAPER.hardware, spread=False), 8, 2) == replace(PAPER.hardware, spread=False)
    assert spread(replace(PAPER.hardware, device="cpu"), 8, 2).replicas == 1


def test_seeds_are_jobs_where_they_may_be_made_at_once() -> None:
    assert side_by_side(PAPER) == len(PAPER.arms)
    more = replace(PAPER, seeds=(0, 1, 2), hardware=replace(PAPER.hardware, arms_at_once=9))
    assert side_by_side(more) == 3 * len(PAPER.arms)


def test_a_report_says_no_hardware_that_its_study_may_not_have_had(tmp_path: Path) -> None:
    """It is the same wherever it was made, and said the profile's own as if it were the study's."""
    text = 'base = "demo"\n[hardware]\narms_at_once = 1\n[budget]\ntokens = 20\n[training]\nsteps = 3\n'
    study = Request(profile="mine.toml", text=text).study(Store(tmp_path))
    told = tomllib.loads(study.settings)
    assert told["training"]["steps"] == 3 and not {"hardware", "budget"} & {*told}


@pytest.mark.parametrize(
    ("gpus", "gib", "asked", "each"),
    [
        (8, 140, 1, 1),
        (8, 48, 1, 2),
        (8, 24, 1, 4),
        (8, 140, 2, 2),  # as many as were asked for, at least
        (8, 8, 1, 1),  # no number is enough
        (8, 140, 3, 3),  # its heads cannot be dealt out: told where the model is checked
        (2, 48, 1, 1),  # one of them trains
        (0, 0, 1, 1),
    ],
)
def test_an_engine_has_as_many_gpus_as_the_published_model_asks_for(
    tmp_path: Path, gpus: int, gib: int, asked: int, each: int
) -> None:
    """61 GB of weights, a slot of adapters, graphs and the cache of a rollout in 88 % of a GPU."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    hollow_weights(tmp_path / "model.safetensors", 61_064_245_248 // 2)
    hardware = replace(PAPER.hardware, tensor_parallel=asked)
    assert enough_gpus(hardware, {tmp_path: 32}, gpus, gib * GIB).tensor_parallel == each
    assert enough_gpus(replace(hardware, spread=False), {tmp_path: 32}, gpus, gib * GIB).tensor_parallel == asked
    assert enough_gpus(replace(hardware, device="cpu"), {tmp_path: 32}, gpus, gib * GIB).tensor_parallel == asked


def test_what_is_resolved_has_engines_that_its_model_fits_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs that are a little smaller than an engine of this mixture takes alone, and larger than half of one does."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    base = write_tiny_mixture(tmp_path / "model", max_position_embeddings=512)
    request = Request(profile="demo", settings=("hardware.device=cuda", "hardware.spread=true", f"model={base}"))
    hardware = profile_named("demo").hardware
    alone, halved = (
        sampler_bytes(base, shared, 16).total
        for shared in (replace(hardware, device="cuda", tensor_parallel=each) for each in (1, 2))
    )
    assert halved < alone
    for bytes_of_one, each in ((alone + halved) / 2, 2), (2 * alone, 1):
        monkeypatch.setattr("flows.study.resolve.gpu_bytes", lambda b=bytes_of_one: int(b / hardware.memory_fraction))
        assert request.study(Store(tmp_path)).profile.hardware.tensor_parallel == each
