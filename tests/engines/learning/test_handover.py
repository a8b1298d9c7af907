"""An adapter handed over as one block is the adapter that PEFT's file holds, a mixture's experts included."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from storage.errors import UserError
from tasks.domain.grpo.learner_config import ALL_LINEAR, LearnerConfig
from tasks.domain.grpo.steps import PromptProblem, StepPlan, TrainRollout
from tasks.engines.learning import adapter_formats
from tasks.engines.learning.adapter_formats import read_served, whole, write_flat
from tasks.engines.learning.learner import train
from tasks.engines.learning.merging import merge_into, merged
from tasks.engines.learning.policy import Execution, Policy
from tests.engines.conftest import random_rollouts
from tests.engines.learning.test_packed import grouped
from tests.tiny_model import write_tiny_mixture

CONFIG = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1e-3, lora_rank=8, lora_alpha=16)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    made = Policy(write_tiny_mixture(tmp_path_factory.mktemp("mixture")), CONFIG, Execution(device="cpu"))
    with torch.no_grad():
        drawn = torch.randn(made.lora.master.shape, generator=torch.Generator().manual_seed(1))
        made.lora.master.add_(drawn * 0.05)
    made.lora.refresh()
    return made


def test_one_block_is_what_peft_s_file_says(policy: Policy, tmp_path: Path) -> None:
    policy.lora.export(tmp_path / "peft", policy.base, torch.float32)
    policy.lora.hand_over(tmp_path / "flat")
    named, flat = (read_served(tmp_path / way, "cpu") for way in ("peft", "flat"))
    assert named.alpha == flat.alpha == 16
    assert named.pairs.keys() == flat.pairs.keys()
    experts = [name for name in flat.pairs if ".experts." in name]
    assert len(experts) == 3 * policy.body.config.num_hidden_layers
    for name, (a, b) in named.pairs.items():
        assert torch.equal(a, flat.pairs[name][0]) and torch.equal(b, flat.pairs[name][1]), name
    assert {name.rsplit(".", 1)[-1] for name in flat.pairs} == {*ALL_LINEAR}


def test_experts_are_merged_each_with_its_own(policy: Policy, tmp_path: Path) -> None:
    policy.lora.hand_over(tmp_path)
    products = read_served(tmp_path, "cpu")
    name = "model.layers.0.mlp.experts.down_proj"
    a, b = products.pairs[name]
    weight = torch.randn(len(a), b.shape[1], a.shape[2], generator=torch.Generator().manual_seed(2))
    out = torch.empty_like(weight)
    merge_into(out, weight, products, name)
    for expert in range(len(a)):
        exact = merged(weight[expert], a[expert], b[expert], products.scale(name))
        assert torch.allclose(out[expert], exact, atol=1e-6), expert
    merge_into(out, weight, products, "model.layers.9.mlp.experts.down_proj")
    assert torch.equal(out, weight)


def test_a_block_is_used_again_for_the_next_adapter(policy: Policy, tmp_path: Path) -> None:
    policy.lora.hand_over(tmp_path / "one")
    first = read_served(tmp_path / "one", "cpu").pairs["model.layers.0.mlp.experts.up_proj"][1].clone()
    inode = (tmp_path / "one" / "adapter.flat").stat().st_ino
    with torch.no_grad():
        policy.lora.work.mul_(3)
    policy.lora.hand_over(tmp_path / "two", used=tmp_path / "one")
    with torch.no_grad():
        policy.lora.work.div_(3)
    assert (tmp_path / "two" / "adapter.flat").stat().st_ino == inode
    assert not (tmp_path / "one" / "adapter.flat").exists()
    again = read_served(tmp_path / "two", "cpu").pairs["model.layers.0.mlp.experts.up_proj"][1]
    assert torch.equal(again, 3 * first)


@pytest.mark.parametrize("staleness", [0, 1])
def test_every_step_is_served_what_peft_s_file_would_say(
    policy: Policy, tmp_path: Path, staleness: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole trainings, one that hands blocks over and one that exports: what the sampler finds is the same, and what
    is kept, though it is written slowly while the next step samples."""
    write = adapter_formats._write_at
    monkeypatch.setattr(adapter_formats, "_write_at", lambda *given: (time.sleep(0.3), write(*given)))
    config = replace(CONFIG, steps=5, groups_per_step=2, group_size=4, eval_every=3, staleness=staleness)
    groups = grouped(random_rollouts(("a", "b"), 4, seed=2))
    found: dict[bool, dict[int, dict[str, torch.Tensor]]] = {True: {}, False: {}}

    def run(flat: bool) -> None:
        def sample(plan: StepPlan) -> list[TrainRollout]:
            if plan.adapter and plan.policy_step:
                assert (plan.adapter.folder / "adapter.flat").is_file() == flat
                pairs = read_served(plan.adapter.folder, "cpu").pairs
                found[flat][plan.policy_step] = {
                    name: torch.cat([a.flatten(), b.flatten()]) for name, (a, b) in pairs.items()
                }
            return [r for problem in plan.problem_ids for r in groups[problem]]

        train(
            base=policy.base,
            problems=[PromptProblem(name, "s") for name in ("a", "b")],
            config=config,
            execution=Execution(device="cpu", flat_adapters=flat),
            workdir=tmp_path / str(flat),
            sample=sample,
        )

    run(True)
    run(False)
    assert found[True].keys() == found[False].keys() >= {1, 2, 3}
    for step, pairs in found[True].items():
        assert all(torch.equal(pair, found[False][step][name]) for name, pair in pairs.items()), step
    served = {folder.name: (folder / "adapter.flat").is_file() for folder in (tmp_path / "True" / "served").iterdir()}
    assert served.pop("step-0003") is served.pop("step-0005") is False  # kept, in PEFT's format
    for step in ("step-0003", "step-0005"):
        one, two = (
            load_file(tmp_path / way / "served" / step / "adapter_model.safetensors") for way in ("True", "False")
        )
        assert all(torch.equal(one[name], two[name]) for name in two), step
    assert list(served.values()).count(True) == staleness


def test_a_kept_adapter_that_a_kill_cut_off_is_written_again(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint after it is there before it is whole: the training goes on from its own step."""
    config = replace(CONFIG, steps=2, groups_per_step=2, group_size=4, eval_every=1)
    groups = grouped(random_rollouts(("a", "b"), 4, seed=2))

    def run(folder: Path) -> Path:
        return train(
            base=policy.base,
            problems=[PromptProblem(name, "s") for name in ("a", "b")],
            config=config,
            execution=Execution(device="cpu", flat_adapters=True),
            workdir=folder,
            sample=lambda plan: [r for problem in plan.problem_ids for r in groups[problem]],
        ).kept_adapters[0]

    with monkeypatch.context() as cut:
        write, calls = adapter_formats._write_at, []
        # the first adapter to be kept is the start's, of one piece as all are
        cut.setattr(adapter_formats, "_write_at", lambda *given: calls.append(1) or (len(calls) < 2 and write(*given)))
        cut.setattr(adapter_formats, "_config", lambda *given: {} if len(calls) < 2 else 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(tmp_path / "cut")
    checkpoints = sorted(f.name for f in (tmp_path / "cut" / "checkpoints").iterdir())
    assert checkpoints == ["step-0001"]
    whole, again = (load_file(run(tmp_path / way) / "adapter_model.safetensors") for way in ("whole", "cut"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


@pytest.mark.parametrize("how", ["cut", "gone", "shapes cut"])
def test_a_block_that_is_not_whole_is_refused(policy: Policy, tmp_path: Path, how: str) -> None:
    """A machine that went down, and a training of stale rollouts that goes on: what lacked was zeros, and the base
    model sampled from in the adapter's name."""
    policy.lora.hand_over(tmp_path)
    block, shapes = tmp_path / "adapter.flat", tmp_path / "adapter.flat.json"
    if how == "cut":
        os.truncate(block, block.stat().st_size - 4)
    elif how == "gone":
        block.unlink()
    else:
        shapes.write_text(shapes.read_text()[:-9])
    before = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    for read in (whole, lambda folder: read_served(folder, "cpu")):
        with pytest.raises(
            UserError, match="cut short or gone; remove the newest folder of the training's checkpoints"
        ):
            read(tmp_path)
    assert {file.name: file.stat().st_size for file in tmp_path.iterdir()} == before
    policy.lora.hand_over(tmp_path)
    assert whole(tmp_path) == tmp_path and read_served(tmp_path, "cpu").pairs


def test_a_block_of_another_size_is_made_anew(tmp_path: Path) -> None:
    for size in (6, 10):
        flat = torch.arange(size, dtype=torch.float32)
        write_flat(tmp_path, flat, {"layer.lora_A.weight": (size // 2, 1), "layer.lora_B.weight": (1, size // 2)}, 1.0)
        a, b = read_served(tmp_path, "cpu").pairs["layer"]
        assert torch.equal(torch.cat([a.flatten(), b.flatten()]), flat)
