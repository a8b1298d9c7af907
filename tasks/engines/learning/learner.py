"""The training loop: sample, update, serve, keep; and on again from where a killed run stood.

A step is a function of the state before it and of its rollouts. `sample` makes the rollouts durable before it returns,
so a run that is killed at any moment repeats at most the update in flight and samples nothing twice.

With `staleness` 1 the rollouts of step s are of the policy after step s - 2, and sampled while step s - 1 trains. Whole
rollouts of one policy each, entered in the ledger under it, so a run that is killed asks for the same again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from traceback import clear_frames
from typing import Any

from storage.errors import Parked, UserError
from tasks.domain.grpo.advantages.group import is_live
from tasks.domain.grpo.credit import Groups, group_rewards
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.losses import loss_for
from tasks.domain.grpo.steps import PromptProblem, StepPlan, TrainRollout, extra_prompts, prompt_schedule
from tasks.engines.adapter_files import adapter_config
from tasks.engines.hardware import release_memory
from tasks.engines.learning import checkpoints, parallel
from tasks.engines.learning.adapters import Adapters, evaluated
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.learning.update import Clock, Updater, updater_for
from tasks.engines.model_files import former_identity, read_config

#: Updates that a training may lose to gradients that are not finite before it stops.
MAX_SKIPPED = 3
SampleFn = Callable[[StepPlan], list[TrainRollout]]
__all__ = ["Execution", "Interrupted", "SampleFn", "StepMetrics", "TrainResult", "train"]


class Interrupted(Parked):
    """Training stopped between two phases because it was asked to; the same call goes on."""


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """row: one row of STEPS without the arm. seconds: by phase, for progress and profiles only."""

    row: dict[str, Any]
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """steps, exposure, diagnostics: rows of STEPS, EXPOSURE and DIAGNOSTICS without the arm. adapter_folder: PEFT,
    float32, after the last step. kept_adapters: as served at each evaluation after step 0, folders `step-NNNN`."""

    steps: list[dict[str, Any]]
    exposure: list[dict[str, Any]]
    diagnostics: list[dict[str, Any]]
    adapter_folder: Path
    kept_adapters: list[Path]


def train(
    *,
    base: Path,
    problems: Sequence[PromptProblem],
    config: LearnerConfig,
    execution: Execution,
    workdir: Path,
    sample: SampleFn,
    on_step: Callable[[StepMetrics], None] = lambda _: None,
    on_checkpoint: Callable[[Path], None] = lambda _: None,
    init_adapter: Path | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
    temperature: float = 1.0,
) -> TrainResult:
    """Train LoRA on `base` for `config.steps` updates; evaluation plans come before the first step, every
    `eval_every` steps and after the last.

    temperature: that rollouts are sampled at.
    workdir: holds checkpoints, served adapters and, at the end, the adapter; outlives a crash.
    on_checkpoint: told of the folder of each one that is whole, by the thread that wrote it.
    Errors: UserError for an unusable base, adapter, checkpoint or configuration, before anything is sampled, and after
    MAX_SKIPPED gradients that are not finite; Interrupted once `stop_requested` says so.
    """
    loss_for(config)
    read_config(base)
    job = {
        "base": base,
        "problems": list(problems),
        "config": config,
        "execution": execution,
        "workdir": workdir,
        "init_adapter": init_adapter,
        "temperature": temperature,
    }
    try:
        with parallel.team(execution.processes, job, workdir / "processes"):
            return _train(
                **job, sample=sample, on_step=on_step, on_checkpoint=on_checkpoint, stop_requested=stop_requested
            )
    except BaseException as error:
        clear_frames(error.__traceback__)  # whoever keeps the error would keep the model on its device
        raise
    finally:
        release_memory()


def _train(
    *,
    base: Path,
    problems: Sequence[PromptProblem],
    config: LearnerConfig,
    execution: Execution,
    workdir: Path,
    sample: SampleFn,
    on_step: Callable[[StepMetrics], None],
    on_checkpoint: Callable[[Path], None],
    init_adapter: Path | None,
    temperature: float,
    stop_requested: Callable[[], bool],
) -> TrainResult:
    """As `train`, in each process of the learner."""
    if init_adapter is not None:
        adapter_config(init_adapter)
    schedule = prompt_schedule(problems, config)
    given = (base, problems, config, init_adapter, temperature)
    recipe = checkpoints.recipe_hash(*given)
    former = checkpoints.recipe_hash(*given, identity=former_identity)
    saved = checkpoints.latest(workdir / "checkpoints", recipe, former)
    policy = Policy(base, config, execution, temperature)
    updater = updater_for(policy, config, execution.token_budget)
    writes = parallel.rank_and_world()[0] == 0
    adapters = Adapters(policy, config, workdir, recipe[:12], writes, execution.stacked_adapters)
    rollouts = StepRollouts(problems, schedule, config, adapters, sample)
    loop = _Loop(config, execution, workdir, rollouts, updater, adapters, recipe, stop_requested, on_checkpoint)
    if init_adapter is not None:
        policy.lora.load(init_adapter, base)
    updater.start_here()
    if saved is not None:
        updater.restore(saved.tensors, saved.objective)
        loop.steps, loop.exposure, loop.diagnostics = saved.steps, saved.exposure, saved.diagnostics
    done = saved.step if saved is not None else 0
    loop.check_finite()
    adapters.serve(done)
    try:
        for step in range(done + 1, config.steps + 1):
            if loop.spent:
                adapters.stay(step)
                break
            on_step(loop.step(step))
        rollouts.evaluate_last()
    finally:
        rollouts.close()
        adapters.close()
    loop.written()
    final, kept = adapters.finish(problems, loop.steps)
    return TrainResult(loop.steps, loop.exposure, loop.diagnostics, final, kept)


@dataclass(slots=True)
class _Loop:
    """What every step needs, and the rows so far."""

    config: LearnerConfig
    execution: Execution
    workdir: Path
    rollouts: StepRollouts
    updater: Updater
    adapters: Adapters
    recipe: str
    stop_requested: Callable[[], bool]
    on_checkpoint: Callable[[Path], None]
    steps: list[dict[str, Any]] = field(default_factory=list)
    exposure: list[dict[str, Any]] = field(default_factory=list)
    diagnostics: list[dict[str, Any]] = field(default_factory=list)
    writer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    writing: Future[None] | None = None

    @property
    def spent(self) -> bool:
        """Whether the tokens that this training may sample are."""
        budget = self.config.token_budget
        return budget is not None and sum(row["num_tokens"] for row in self.steps) >= budget

    def step(self, step: int) -> StepMetrics:
        clock = Clock()
        with clock.phase("sample"):
            groups = self.rollouts.of(step)
        self._check_stop(step, "sampled")
        self.rollouts.look_ahead(step + 1)
        with self.adapters.changing:
            row = self._updated(step, groups, clock)
        return StepMetrics(row, clock.seconds)

    def _updated(self, step: int, groups: Groups, clock: Clock) -> dict[str, Any]:
        """Update on these rollouts, keep what a crash must not cost, and serve the new weights; the step's row."""
        with clock.phase("sync"):
            self.adapters.written()
        row = {"seed": self.config.seed, "step": step} | self.updater.update(groups, clock, step)
        self.steps.append(row)
        told = self.updater.diagnostics.items()
        self.diagnostics += [
            {"seed": row["seed"], "step": step, "metric": name, "value": value} for name, value in told
        ]
        self.exposure.extend(self._exposure(step, groups))
        with clock.phase("checkpoint"):
            if step % self.execution.checkpoint_every == 0 or step == self.config.steps:
                self._save(step)
        self.check_finite()
        self._check_stop(step, "trained")
        with clock.phase("sync"):
            self.adapters.serve(step)
        return row

    def _save(self, step: int) -> None:
        """On disk before the next one begins, and before this returns unless checkpoints are asynchronous."""
        self.written()
        if not self.adapters.writes:
            return
        rows = (list(self.steps), list(self.exposure), list(self.diagnostics))
        state = checkpoints.State(step, self.recipe, self.updater.tensors(), *rows, self.updater.remembered)
        root, keep = self.workdir / "checkpoints", self.execution.keep_checkpoints

        def write() -> None:
            self.on_checkpoint(checkpoints.save(root, state, keep))

        if self.execution.async_checkpoints:
            self.writing = self.writer.submit(write)
        else:
            write()

    def written(self) -> None:
        """Wait for the checkpoint being written, and raise what went wrong with it."""
        if self.writing is not None:
            self.writing.result()

    def _exposure(self, step: int, groups: Groups) -> list[dict[str, Any]]:
        return [
            {
                "seed": self.config.seed,
                "step": step,
                "problem_id": problem_id,
                "source": group[0].source,
                "num_correct": sum(r.correct for r in group),
                "group_size": len(group),
                "live": is_live(group_rewards(group, self.config)),
            }
            for problem_id, group in groups.items()
        ]

    def check_finite(self) -> None:
        """Errors: UserError once too many updates were skipped; a resumed training says so before it samples."""
        skipped = {row["step"]: row["skipped_updates"] for row in self.steps if row["skipped_updates"]}
        if sum(skipped.values()) >= MAX_SKIPPED:
            self.written()
            raise UserError(
                f"training: {sum(skipped.values())} gradients were not finite (steps {', '.join(map(str, skipped))});"
                " the weights before them are kept in the checkpoint: lower learning_rate or set grad_clip, and look at"
                " those steps' behaviour log-probs"
            )

    def _check_stop(self, step: int, phase: str) -> None:
        if self.stop_requested():
            self.written()
            raise Interrupted(f"training was asked to stop: step {step} is {phase}; the same command goes on")


def _like_this_thread() -> ThreadPoolExecutor:
    """One thread, whose parallel regions are as wide as this one's. OpenMP gives a new thread all cores, torch its own
    number once it is asked for it: an engine that meets both fails, and the width decides the last bits of a sum."""
    import torch

    return ThreadPoolExecutor(1, initializer=torch.get_num_threads)


@dataclass(slots=True)
class StepRollouts:
    """schedule: the prompts of each step, from 1. sample: makes rollouts durable before it returns them; called in
    one process of the learner, never twice at once."""

    problems: Sequence[PromptProblem]
    schedule: Sequence[tuple[str, ...]]
    config: LearnerConfig
    adapters: Adapters
    sample: SampleFn
    _ahead: Future[list[TrainRollout]] | None = None
    _thread: ThreadPoolExecutor = field(default_factory=_like_this_thread)

    def of(self, step: int) -> Groups:
        """The step's groups by problem; dead ones are followed by further prompts where resampling is on."""
        groups = self._grouped(self._plan(step))
        wanted, budget = len(self.schedule[step - 1]), self.config.max_extra_groups
        spare = extra_prompts(self.problems, self.config, step, self.schedule[step - 1]) if budget else []
        while spare and budget and (lacking := wanted - self._live(groups)) > 0:
            number = min(lacking, budget, len(spare))
            groups |= self._grouped(self._plan(step, tuple(spare[:number])))
            spare, budget = spare[number:], budget - number
        return groups

    def look_ahead(self, step: int) -> None:
        """Begin with the rollouts of `step`, whose policy is served already; `of` waits for them."""
        if self.config.staleness and step <= self.config.steps and self.adapters.writes:
            self._ahead = self._thread.submit(copy_context().run, self.sample, self._plan(step))

    def evaluate_last(self) -> None:
        """Held-out problems under the policies that no step's plan was left to carry."""
        for policy_step in range(max(1, self.config.steps - self.config.staleness), self.config.steps + 1):
            if evaluated(self.config, policy_step):
                self._sampled(self._plan_of(self.config.steps + 1, (), policy_step, evaluate=True))

    def close(self) -> None:
        """What is being sampled is paid for: wait until it is kept."""
        self._thread.shutdown(wait=True)

    def _plan(self, step: int, extra: tuple[str, ...] | None = None) -> StepPlan:
        policy_step = max(0, step - 1 - self.config.staleness)
        first_of_it = step == 1 or policy_step > 0
        evaluate = extra is None and first_of_it and evaluated(self.config, policy_step)
        return self._plan_of(step, self.schedule[step - 1] if extra is None else extra, policy_step, evaluate=evaluate)

    def _plan_of(self, step: int, problem_ids: tuple[str, ...], policy_step: int, *, evaluate: bool) -> StepPlan:
        served, critic = self.adapters.served(policy_step), self.adapters.critic(policy_step)
        score = self.adapters.scorer(policy_step)
        return StepPlan(step, problem_ids, self.config.group_size, policy_step, served, evaluate, critic, score)

    def _live(self, groups: Groups) -> int:
        return sum(is_live(group_rewards(g, self.config)) for g in groups.values())

    def _sampled(self, plan: StepPlan) -> list[TrainRollout]:
        return parallel.from_first(self._made(plan) if self.adapters.writes else None)

    def _made(self, plan: StepPlan) -> list[TrainRollout]:
        ahead, self._ahead = self._ahead, None
        return self.sample(plan) if ahead is None else ahead.result()

    def _grouped(self, plan: StepPlan) -> dict[str, list[TrainRollout]]:
        groups: dict[str, list[TrainRollout]] = {problem_id: [] for problem_id in plan.problem_ids}
        for rollout in self._sampled(plan):
            groups[rollout.problem_id].append(rollout)
        for problem_id, group in groups.items():
            group.sort(key=lambda r: r.rollout)
            if len(group) != plan.group_size:
                raise RuntimeError(f"step {plan.step}: {len(group)} rollouts of {problem_id}, not {plan.group_size}")
        return groups


if __name__ == "__main__":  # one of the learner's other processes: the first one's job, with its rollouts
    train(**parallel.join_team(*map(int, sys.argv[1:])), sample=lambda _: [])
