"""The loop: what it asks for, what it leaves, and that stopping it anywhere changes nothing."""

import hashlib
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

from storage.errors import Parked, UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.steps import PromptProblem, StepPlan, TrainRollout
from tasks.engines.hardware import Hardware
from tasks.engines.learning import checkpoints, parallel, policy
from tasks.engines.learning.attention import ATTENTION_NAME
from tasks.engines.learning.checkpoints import Adapters
from tasks.engines.learning.learner import Execution, StepMetrics, StepRollouts, TrainResult, train
from tasks.engines.learning.policy import scoring_policy
from tasks.engines.learning.update import Updater
from tests.engines.conftest import random_rollouts

CONFIG = LearnerConfig(
    steps=4, groups_per_step=2, group_size=4, learning_rate=1e-2, lora_rank=4, lora_alpha=4, eval_every=3
)
PROBLEMS = [PromptProblem(f"p{i}", f"s{i % 2}") for i in range(6)]


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


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
    )


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "adapter_model.safetensors")


def same(a: Path, b: Path) -> bool:
    return (a / "adapter_model.safetensors").read_bytes() == (b / "adapter_model.safetensors").read_bytes()


class Stopped(Exception):
    """A training is stopped between two phases."""


@contextmanager
def stopped_at(number: int) -> Iterator[None]:
    """Stop in this block at the number-th phase: before a step's update, or before its weights are served."""
    phases, look_ahead, serve = count(1), StepRollouts.look_ahead, Adapters.serve

    def before(method: Callable[..., None]) -> Callable[..., None]:
        def call(own: Any, step: int) -> None:
            if step and next(phases) == number:
                raise Stopped
            method(own, step)

        return call

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(StepRollouts, "look_ahead", before(look_ahead))
        patched.setattr(Adapters, "serve", before(serve))
        yield


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
        place, rollouts = folder / f"stopped-{stop_at}", sampler()
        with stopped_at(stop_at), pytest.raises(Stopped):
            run(base, place, config, sample=rollouts, **how)
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


def state(step: int, recipe: str = "r") -> checkpoints.State:
    return checkpoints.State(
        step,
        recipe,
        {"weights": torch.full((3,), float(step))},
        {"steps": [{"step": step}], "exposure": [], "diagnostics": []},
    )


def test_the_newest_whole_and_finite_checkpoint_comes_back(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        checkpoints.save(tmp_path, state(step))
    (tmp_path / ".step-0004.77").mkdir()
    (tmp_path / ".step-0004.77" / "state.json").write_text("{")
    for spoilt in (float("nan"), float("inf")):
        with pytest.raises(UserError, match=r"after step 4 weights are not finite"):
            checkpoints.save(tmp_path, replace(state(4), tensors={"weights": torch.tensor([1.0, spoilt])}))
    found = checkpoints.latest(tmp_path, "r", "")
    assert found is not None
    assert (found.step, found.rows["steps"], found.tensors["weights"].tolist()) == (3, [{"step": 3}], [3.0] * 3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-0002", "step-0003"]


# Rollouts of the policy before the last one: what is asked of whom and when, and that stopping changes nothing.


STALE = replace(CONFIG, staleness=1)


@dataclass
class Book:
    """Rollouts that are a function of the weights that are asked, and remembered, as a ledger does."""

    entries: dict[tuple[int, tuple[str, ...]], list[TrainRollout]] = field(default_factory=dict)
    plans: list[StepPlan] = field(default_factory=list)

    def sample(self, plan: StepPlan) -> list[TrainRollout]:
        self.plans.append(plan)
        key = (plan.step, plan.problem_ids)
        if plan.problem_ids and key not in self.entries:
            assert plan.adapter is not None and plan.adapter.folder.name == f"step-{plan.policy_step:04d}"
            weights = (plan.adapter.folder / "adapter_model.safetensors").read_bytes()
            seed = int.from_bytes(hashlib.sha256(weights).digest()[:4], "big") + plan.step
            self.entries[key] = random_rollouts(plan.problem_ids, plan.group_size, seed)
        return self.entries.get(key, [])


def test_the_next_step_is_sampled_while_this_one_trains(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 1 does not update before step 2 is being sampled: it would wait for ever if sampling waited for it."""
    asked, book, update, met = threading.Event(), Book(), Updater.update, list[bool]()

    def sample(plan: StepPlan) -> list[TrainRollout]:
        if plan.step == 2:
            asked.set()
        return book.sample(plan)

    def waiting(self: Updater, *args: Any) -> dict[str, Any]:
        met.append(asked.wait(60))
        return update(self, *args)

    monkeypatch.setattr(Updater, "update", waiting)
    run(tiny_base, tmp_path, replace(STALE, steps=2), sample=sample)
    assert met == [True, True]


def failing(at: int, book: Book) -> Callable[[StepPlan], list[TrainRollout]]:
    def sample(plan: StepPlan) -> list[TrainRollout]:
        if plan.step == at:
            raise Parked("the budget is spent")
        return book.sample(plan)

    return sample


@pytest.mark.parametrize("at", [1, 2, 4, 5])
def test_a_wall_met_ahead_parks_after_the_update_that_is_paid_for(tiny_base: Path, tmp_path: Path, at: int) -> None:
    done, book = list[int](), Book()
    with pytest.raises(Parked, match="the budget is spent"):
        run(tiny_base, tmp_path / "a", STALE, sample=failing(at, book), on_step=lambda m: done.append(m.row["step"]))
    assert done == list(range(1, at))
    resumed = run(tiny_base, tmp_path / "a", STALE, sample=book.sample)
    assert same(
        resumed.kept_adapters[-1], run(tiny_base, tmp_path / "b", STALE, sample=Book().sample).kept_adapters[-1]
    )


# KL to the start: which groups it holds, and what it is measured from.


def test_kl_is_to_where_training_started(tiny_base: Path, tmp_path: Path) -> None:
    """Zero at the first update, whether the start is the base model or an adapter; then it grows, and weight holds it
    down. Null where the loss has none."""
    config = replace(CONFIG, steps=6)
    first = run(tiny_base, tmp_path / "first", config)
    assert {row["kl_start"] for row in first.steps} == {None}
    for init in (None, first.kept_adapters[-1]):
        ends = []
        for weight in (1e-6, 10.0):
            folder = tmp_path / f"{init is None}-{weight}"
            rows = run(tiny_base, folder, replace(config, kl_weight=weight), init=init).steps
            assert rows[0]["kl_start"] == 0.0 and all(row["kl_start"] > 0 for row in rows[1:])
            ends.append(rows[-1]["kl_start"])
        assert ends[1] < 0.8 * ends[0]


# Processes that share a step have the gradient, the weights and the numbers of one.


ALONE = Execution(device="cpu", token_budget=40)
TWO = replace(ALONE, processes=2)


def others() -> list[psutil.Process]:
    return [p for p in psutil.Process().children() if p.cmdline()[1:3] == ["-m", "tasks.engines.learning.learner"]]


def test_two_processes_are_one(tiny_base: Path, tmp_path: Path) -> None:
    """After the first step, which shows the gradient, and after all of them; nobody is left behind."""
    seen: list[int] = []

    def look(plan: StepPlan) -> list[TrainRollout]:
        seen.append(len(others()))
        return sample(plan)

    one = run(tiny_base, tmp_path / "one", execution=ALONE)
    two = run(tiny_base, tmp_path / "two", execution=TWO, sample=look)
    assert seen == [1] * 5 and others() == []
    assert one.exposure == two.exposure
    assert one.steps[0]["grad_norm"] == pytest.approx(two.steps[0]["grad_norm"], rel=1e-5)
    for mine, shared in zip(one.steps, two.steps, strict=True):
        assert {k for k, v in shared.items() if v is None} == {k for k, v in mine.items() if v is None} == {"kl_start"}
        assert shared | {"kl_start": 0} == pytest.approx(mine | {"kl_start": 0}, rel=1e-4)
    for name, matrix in weights(one.kept_adapters[-1]).items():
        assert torch.allclose(weights(two.kept_adapters[-1])[name], matrix, atol=1e-5)


def test_the_learners_processes_talk_on_this_machine_only() -> None:
    """torch's own store listens to the world, whatever host it is given."""
    here = psutil.Process()
    before = set(here.net_connections())
    store = parallel._store(0)
    opened = {c.laddr.ip for c in set(here.net_connections()) - before if c.status == psutil.CONN_LISTEN}
    assert opened == {"127.0.0.1"}
    del store


@pytest.mark.slow
def test_a_process_that_dies_parks_the_training(tiny_base: Path, tmp_path: Path) -> None:
    def kill(metrics: StepMetrics) -> None:
        if metrics.row["step"] == 2:
            os.kill(others()[0].pid, signal.SIGKILL)

    with pytest.raises(Parked, match=r"process 1 of the learner ended early, see .*process-1\.log"):
        run(tiny_base, tmp_path, execution=TWO, on_step=kill)
    done: list[StepMetrics] = []
    run(tiny_base, tmp_path, execution=ALONE, on_step=done.append)
    assert [m.row["step"] for m in done] == [3, 4]
