"""How a study's work lies on the GPUs that are here, and what does not fit onto them, said before anything is loaded."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flows.running.fit import Machine, memory_lines
from flows.study.machine import enough_gpus, served_ranks
from flows.study.profiles import DEMO, PAPER
from flows.study.request import profile_of
from flows.study.resolve import Study
from storage.errors import UserError
from tasks.domain.policies import BaseModel
from tests.tiny_model import CONFIG, hollow_weights

GIB = 1 << 30
H200 = Machine(gpus=2, gpu=140 * GIB, host=250 * GIB)


def study(folder: Path, **hardware: object) -> Study:
    """The published design's panel arm, on a file as large as the published model, of which nothing is written."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    hollow_weights(folder / "model.safetensors", 61_064_245_248 // 2)
    profile = replace(PAPER, arms=("panel",), lessons=())
    profile = replace(profile, hardware=replace(profile.hardware, **{"arms_at_once": 1} | hardware))
    return Study(profile, {"panel": BaseModel(name="mixture", sha256="s")}, {}, "", {"s": folder})


def test_the_published_design_fits_onto_two_gpus_an_arm(tmp_path: Path) -> None:
    found = study(tmp_path)
    assert found.profile.hardware.sampler_apart
    said = "sampling 60.6 GiB of a GPU, training 123.5"
    assert [*memory_lines(found, H200)] == [f"memory of {tmp_path.name}: {said}"]


@pytest.mark.parametrize(
    ("hardware", "machine", "said"),
    [
        ({}, Machine(2, 80 * GIB, 250 * GIB), "needs about"),
        ({"memory_fraction": 0.4}, H200, "raise hardware.memory_fraction or tensor_parallel"),
        ({}, Machine(2, 140 * GIB, 100 * GIB), r"2 copies in host memory needs about"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, hardware: dict[str, object], machine: Machine, said: str) -> None:
    with pytest.raises(UserError, match=said):
        list(memory_lines(study(tmp_path, **hardware), machine))


ONE, OTHER = BaseModel(name="one", sha256="1" * 64), BaseModel(name="other", sha256="2" * 64)


def test_engines_serve_the_largest_adapter_that_is_trained_on_their_base_or_made_elsewhere() -> None:
    models = {"panel": ONE, "thinking": ONE}
    wide = profile_of("wide.toml", "base = 'demo'\n[objectives.GRPO]\n[objectives.wide]\nlora_rank = 64\n")
    assert served_ranks(wide, models, {}) == {ONE.sha256: 64}
    assert served_ranks(DEMO, models, {}) == {ONE.sha256: 16}
    assert served_ranks(replace(DEMO, seeds=()), models, {}) == {ONE.sha256: 0}
    top = replace(DEMO.arm("panel"), name="top", trained_as=None)
    ceiling, models = replace(DEMO, arms=("panel", "top"), own=(top,)), {"panel": ONE, "top": OTHER}
    assert served_ranks(ceiling, models, {}) == {ONE.sha256: 16, OTHER.sha256: 0}
    assert served_ranks(ceiling, models, {OTHER.sha256: 8, ONE.sha256: 8}) == {ONE.sha256: 16, OTHER.sha256: 8}


@pytest.mark.parametrize(
    ("gpus", "gib", "asked", "each"),
    [
        (8, 48, 1, 2),
        (8, 24, 1, 4),
        (8, 140, 2, 2),  # as many as were asked for, at least
        (2, 48, 1, 1),
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
