"""How a study's work lies on the GPUs that are here, and what does not fit onto them, said before anything is loaded."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from flows.study import layout
from flows.study.layout import enough_gpus, served_ranks, side_by_side, spread
from flows.study.memory import Machine, check_memory, memory_lines
from flows.study.profile import Objective
from flows.study.profiles import DEMO, PAPER
from flows.study.request import profile_of
from flows.study.resolve import Study
from storage.errors import UserError
from tasks.domain.policies import BaseModel
from tasks.engines.hardware import Hardware
from tasks.engines.memory import sampler_bytes
from tests.hollow import hollow_weights
from tests.random_mixture import CONFIG

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
    check_memory(found, H200)
    said = "sampling 60.6 GiB of a GPU, training 123.5 and 144.6 of the disk"
    assert memory_lines(found, H200) == [f"memory of {tmp_path.name}: {said}"]


@pytest.mark.parametrize(
    ("hardware", "machine", "said"),
    [
        ({}, Machine(2, 80 * GIB, 250 * GIB), "needs about"),
        ({"memory_fraction": 0.4}, H200, "raise that or hardware.tensor_parallel"),
        ({"sampler_apart": False, "memory_fraction": 0.5}, H200, "training needs about"),
        ({}, Machine(2, 140 * GIB, 100 * GIB), r"copies in host memory \(2 of 56.9 GiB"),
        ({"token_budget": 200_000, "checkpointing": "off"}, H200, "training needs about"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, hardware: dict[str, object], machine: Machine, said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_memory(study(tmp_path, **hardware), machine)


def test_one_gpu_is_refused_before_anything_is_loaded_and_the_plan_says_so(tmp_path: Path) -> None:
    """As it is for their number, and both on one for its memory."""
    one = Machine(1, 140 * GIB, 1000 * GIB)
    for hardware, said in (
        (
            spread(PAPER.hardware, 1, jobs=2),
            r"an arm takes 2 GPUs \(1 of the learner, 1 of the sampler\) and 1 is here",
        ),
        (replace(PAPER.hardware, sampler_apart=False), "training needs about"),
    ):
        found = study(tmp_path, **asdict(hardware))
        with pytest.raises(UserError, match=said):
            check_memory(found, one)
        assert memory_lines(found, one)[-1].startswith("this machine would refuse it: ")
    assert layout.gpus_line(spread(PAPER.hardware, 1, jobs=2), 1) == ""


def test_every_training_is_planned_for_and_not_the_studied_one_alone(tmp_path: Path) -> None:
    """Lessons of more steps, or without a studied training after them; an objective with a critic."""
    lesson = replace(PAPER.lessons[0], arms=("panel",))
    found = study(tmp_path)

    def said(**changes: object) -> str:
        changed = replace(found, profile=replace(found.profile, **changes))  # type: ignore[arg-type]
        return memory_lines(changed, H200)[0]

    assert "144.6 of the disk" in said() and "163.5 of the disk" in said(lessons=(lesson,))
    assert "163.5 of the disk" in said(seeds=(), lessons=(lesson,))
    assert ", training" not in said(seeds=(), lessons=(replace(lesson, arms=("thinking",)),))
    critic = Objective(name="multi-agent", training=replace(PAPER.training, advantage="multi_agent"))
    assert "289.2 of the disk" in said(objectives=(critic,)) and ", training" not in said(
        seeds=(), objectives=(critic,)
    )


def test_a_sampler_without_a_place_for_one_rollout_is_refused(tmp_path: Path) -> None:
    """14,336 tokens of 96 KiB: vLLM said so, once it had loaded the weights. By two GPUs a half each."""
    (base,) = study(tmp_path).places.values()
    for parts, cache in ((1, 14_336 * 96 << 10), (2, 14_336 * 48 << 10), (8, 14_336 * 24 << 10)):
        asked = {"tensor_parallel": parts, "adapters": "unmerged"}
        hardware = replace(PAPER.hardware, **asked)
        assert sampler_bytes(base, hardware, 32).cache == cache
        needed = sampler_bytes(base, hardware, 32).total
        machine = Machine(1 + parts, 140 * GIB, 250 * GIB)
        check_memory(study(tmp_path, **asked, memory_fraction=(needed + 1e6) / machine.gpu), machine)
        with pytest.raises(UserError, match=r"for the cache of one rollout.* change hardware\.max_model_len"):
            check_memory(study(tmp_path, **asked, memory_fraction=(needed - 1e6) / machine.gpu), machine)


def test_a_machine_that_does_not_say_what_it_has_is_asked_nothing(tmp_path: Path) -> None:
    check_memory(study(tmp_path, memory_fraction=0.1), Machine(0, 0, GIB))
    on_cpu = study(tmp_path)
    on_cpu = replace(on_cpu, profile=replace(on_cpu.profile, hardware=Hardware()))
    check_memory(on_cpu, Machine(0, 0, GIB))
    assert memory_lines(on_cpu, Machine(0, 0, GIB)) == []


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


def test_seeds_are_jobs_where_they_may_be_made_at_once() -> None:
    assert side_by_side(PAPER) == len(PAPER.arms)
    more = replace(PAPER, seeds=(0, 1, 2), hardware=replace(PAPER.hardware, arms_at_once=9))
    assert side_by_side(more) == 3 * len(PAPER.arms)


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
