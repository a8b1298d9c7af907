"""The loop: what it asks for, what it leaves, and that stopping it anywhere changes nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from storage.artifacts.kinds import EXPOSURE, Training
from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.steps import PromptProblem, StepPlan, TrainRollout
from tasks.engines.hardware import Hardware
from tasks.engines.learning import policy
from tasks.engines.learning.attention import ATTENTION_NAME
from tasks.engines.learning.learner import Execution, Interrupted, StepMetrics, TrainResult, train
from tasks.engines.learning.policy import scoring_policy
from tests.engines.conftest import random_rollouts

CONFIG = LearnerConfig(
    steps=4, groups_per_step=2, group_size=4, learning_rate=1e-2, lora_rank=4, lora_alpha=4, eval_every=3
)
PROBLEMS = [PromptProblem(f"p{i}", f"s{i % 2}") for i in range(6)]


def sample(plan: StepPlan) -> list[TrainRollout]:
    return random_rollouts(plan.problem_ids, plan.group_size, plan.step)


def run(
    base: Path,
    workdir: Path,
    config: LearnerConfig = CONFIG,
    *,
    sample: Callable[[StepPlan], list[TrainRollout]] = sample,
    on_step: Callable[[StepMetrics], None] = lambda _: None,
    init: Path | None = None,
    stop: Callable[[], bool] = lambda: False,
    execution: Execution | None = None,
) -> TrainResult:
    return train(
        base=base,
        problems=PROBLEMS,
        config=config,
        execution=execution or Execution(device="cpu"),
        workdir=workdir,
        sample=sample,
        on_step=on_step,
        init_adapter=init,
        stop_requested=stop,
    )


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "adapter_model.safetensors")


def same(a: Path, b: Path) -> bool:
    return (a / "adapter_model.safetensors").read_bytes() == (b / "adapter_model.safetensors").read_bytes()


def check_resumed(
    base: Path,
    folder: Path,
    config: LearnerConfig,
    stops: Iterable[int],
    sampler: Callable[[], Callable[[StepPlan], list[TrainRollout]]] = lambda: sample,
    **how: Any,
) -> TrainResult:
    """Stop a training at some of its checks, resume it, and compare every byte with the undisturbed run, which is
    returned. sampler: makes what samples in one training."""
    whole = run(base, folder / "whole", config, sample=sampler(), **how)
    for stop_at in stops:
        calls, place, rollouts = iter(range(1, 99)), folder / f"stopped-{stop_at}", sampler()
        with pytest.raises(Interrupted, match="the same command resumes it"):
            run(base, place, config, sample=rollouts, stop=lambda c=calls, at=stop_at: next(c) == at, **how)
        torch.manual_seed(stop_at)
        resumed = run(base, place, config, sample=rollouts, **how)
        assert (whole.steps, whole.exposure, whole.diagnostics) == (
            resumed.steps,
            resumed.exposure,
            resumed.diagnostics,
        )
        ends = [max((root / "checkpoints").glob("step-*")) for root in (folder / "whole", place)]
        for one in ("state.json", "state.safetensors"):
            assert (ends[0] / one).read_bytes() == (ends[1] / one).read_bytes()
        for mine, other in zip(whole.kept_adapters, resumed.kept_adapters, strict=True):
            for file in mine.rglob("adapter_model.safetensors"):
                assert file.read_bytes() == (other / file.relative_to(mine)).read_bytes()
    return whole


def test_plans_rows_and_folders(tiny_base: Path, tmp_path: Path) -> None:
    plans: list[StepPlan] = []
    result = run(tiny_base, tmp_path, sample=lambda p: (plans.append(p), sample(p))[1])
    assert [(p.step, p.policy_step, len(p.problem_ids), p.evaluate) for p in plans] == [
        (1, 0, 2, True),
        (2, 1, 2, False),
        (3, 2, 2, False),
        (4, 3, 2, True),
        (5, 4, 0, True),
    ]
    assert all(p.adapter is not None and p.adapter.folder.name == f"step-{p.policy_step:04d}" for p in plans)
    assert len({p.adapter.name for p in plans if p.adapter}) == 5
    assert [f.name for f in result.kept_adapters] == ["step-0003", "step-0004"]
    assert all({"arm", *row} == set(Training.schema.names) for row in result.steps)
    assert all({"arm", *row} == set(EXPOSURE.names) for row in result.exposure)
    assert [row["step"] for row in result.steps] == [1, 2, 3, 4]
    assert same(result.kept_adapters[-1], result.kept_adapters[-1])
    for folder, step in zip(result.kept_adapters, (3, 4), strict=True):
        assert f"after {step} GRPO steps" in (folder / "README.md").read_text()


def test_stopped_and_resumed_anywhere_is_the_undisturbed_run(tiny_base: Path, tmp_path: Path) -> None:
    """The stop comes before the update of a step or after it."""
    check_resumed(tiny_base, tmp_path, CONFIG, range(1, 2 * CONFIG.steps + 1))


def test_asynchronous_checkpoints_and_sparse_ones_change_nothing(tiny_base: Path, tmp_path: Path) -> None:
    whole = run(tiny_base, tmp_path / "whole")
    execution = Execution(device="cpu", async_checkpoints=True, checkpoint_every=3, token_budget=8192)
    assert same(whole.kept_adapters[-1], run(tiny_base, tmp_path / "other", execution=execution).kept_adapters[-1])


def test_another_recipe_does_not_go_on_from_this_checkpoint(tiny_base: Path, tmp_path: Path) -> None:
    run(tiny_base, tmp_path, replace(CONFIG, steps=1))
    with pytest.raises(UserError, match="another recipe"):
        run(tiny_base, tmp_path, replace(CONFIG, steps=1, learning_rate=5e-3))


def test_an_adapter_of_some_layers_is_scored_with_the_others_at_zero(tiny_base: Path, tmp_path: Path) -> None:
    """Engines serve it, so what they sample must be checked."""
    from safetensors.torch import load_file, save_file

    folder = run(tiny_base, tmp_path / "a", replace(CONFIG, steps=1)).kept_adapters[-1]
    whole = load_file(folder / "adapter_model.safetensors")
    some = {name: matrix for name, matrix in whole.items() if ".layers.0." in name}
    save_file(some, folder / "adapter_model.safetensors")
    loaded = scoring_policy(tiny_base, folder, Hardware(device="cpu")).lora
    found = {name: matrix.abs().max().item() for name, matrix in loaded.views(loaded.master).items()}
    assert 0 < len(some) < len(whole) == len(found)
    assert all((largest > 0) == (".layers.0." in name) for name, largest in found.items())


def test_dead_groups_are_replaced_and_counted(tiny_base: Path, tmp_path: Path) -> None:
    """Every problem but p0 and p3 is dead; the extra groups' tokens are in the step's tokens."""

    def mostly_dead(plan: StepPlan) -> list[TrainRollout]:
        return [r if r.problem_id in ("p0", "p3") else replace(r, correct=False) for r in sample(plan)]

    config = replace(CONFIG, steps=3, max_extra_groups=4)
    plain = run(tiny_base, tmp_path / "plain", replace(config, max_extra_groups=0), sample=mostly_dead)
    result = run(tiny_base, tmp_path / "extra", config, sample=mostly_dead)
    for step, row in enumerate(result.steps, 1):
        used = [e for e in result.exposure if e["step"] == step]
        assert sum(e["live"] for e in used) == 2
        assert len({e["problem_id"] for e in used}) == len(used)
        assert row["all_zero"] == len(used) - 2
    assert sum(r["num_tokens"] for r in result.steps) > sum(r["num_tokens"] for r in plain.steps)


def test_a_step_without_a_gradient_says_so(tiny_base: Path, tmp_path: Path) -> None:
    def dead(plan: StepPlan) -> list[TrainRollout]:
        return [replace(r, correct=True) for r in sample(plan)]

    result = run(tiny_base, tmp_path, replace(CONFIG, steps=1), sample=dead)
    row = result.steps[0]
    assert (row["live_groups"], row["all_one"], row["trained_tokens"]) == (0.0, 2, 0)
    assert row["entropy"] is row["loss"] is row["grad_norm"] is row["ratio_max"] is None
    assert not any(t.any() for n, t in weights(result.kept_adapters[-1]).items() if "lora_B" in n)


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_of_a_training_stays_on_its_device(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The next training of the process has the memory for itself, also if this one failed and its error is kept."""
    models: list[weakref.ref[torch.nn.Module]] = []
    left: list[int] = []

    def loaded(*given: Any) -> Any:
        model = load(*given)
        models.extend(weakref.ref(module) for module in model.modules())
        return model

    def fail(_: StepPlan) -> list[TrainRollout]:
        raise UserError("the provider is gone")

    load = partial(policy.loaded, attn_implementation=ATTENTION_NAME)
    monkeypatch.setattr(policy, "loaded", lambda *given, **_: loaded(*given))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: left.append(sum(m() is not None for m in models)))
    if not fails:
        run(tiny_base, tmp_path)
    else:
        with pytest.raises(UserError) as kept:
            run(tiny_base, tmp_path, sample=lambda p: sample(p) if p.step < 3 else fail(p))
        assert kept.tb
    assert models and left[-1] == 0
