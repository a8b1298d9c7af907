"""The training loop (sample, update, serve, save), and how a killed training resumes.

A step depends only on the state before it and on its rollouts. `sample` stores rollouts before it returns. So a killed
run repeats at most the last update, and samples nothing twice. With `staleness` 1 the rollouts of step s come from the
policy after step s - 2 and are sampled while step s - 1 trains. All rollouts come from one policy and are stored under
it in the ledger, so that a resumed run requests the same rollouts.
"""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from traceback import clear_frames
from typing import Any

import torch

from storage.errors import UserError
from tasks.domain.grpo.advantages.group import is_live
from tasks.domain.grpo.credit import Groups, group_rewards
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.losses import loss_for
from tasks.domain.grpo.steps import PromptProblem, StepPlan, TrainRollout, extra_prompts, prompt_schedule
from tasks.engines.adapter_files import adapter_config
from tasks.engines.hardware import release_memory
from tasks.engines.learning import checkpoints, parallel
from tasks.engines.learning.checkpoints import Adapters, evaluated
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.learning.update import Clock, updater_for
from tasks.engines.model_files import former_identity, read_config

#: Number of updates with gradients that are not finite after which a training stops.
MAX_SKIPPED = 3
SampleFn = Callable[[StepPlan], list[TrainRollout]]
Row = dict[str, Any]
__all__ = ["Execution", "SampleFn", "StepMetrics", "TrainResult", "train"]


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """The metrics of a step. row: one row of STEPS, without the arm. seconds: by phase, for display only."""

    row: Row
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The result of a training. steps, exposure, diagnostics: rows of STEPS, EXPOSURE and DIAGNOSTICS, without the arm.
    kept_adapters: folders `step-NNNN` (PEFT, float32), one for each evaluation after step 0; the last is the result."""

    steps: list[Row]
    exposure: list[Row]
    diagnostics: list[Row]
    kept_adapters: list[Path]


@dataclass(frozen=True)
class Job:
    """A training, the same in every process of the learner. temperature: that of sampling."""

    base: Path
    problems: Sequence[PromptProblem]
    config: LearnerConfig
    execution: Execution
    workdir: Path
    init_adapter: Path | None = None
    temperature: float = 1.0


def train(
    *,
    sample: SampleFn,
    on_step: Callable[[StepMetrics], None] = lambda _: None,
    on_checkpoint: Callable[[Path], None] = lambda _: None,
    pay: Callable[[int, str], None] = lambda *_: None,
    **given: Any,
) -> TrainResult:
    """Train LoRA on `base` for `config.steps` updates. Plan evaluations before the first step, every `eval_every` steps
    and after the last.

    given: the fields of Job. workdir: holds checkpoints, served adapters and finally the result; survives a crash.
    on_checkpoint: gets the folder of each complete checkpoint, in the thread that wrote it. pay: gets the number of
    tokens before a service trains on them, and a key by which they are charged once. Raise UserError, before sampling,
    for an unusable base, adapter, checkpoint or configuration; and after MAX_SKIPPED gradients that are not finite.
    """
    job = Job(**given)
    loss_for(job.config)
    read_config(job.base)
    try:
        with parallel.team(job.execution.processes, job, job.workdir / "processes"):
            return _Training(job, sample, on_checkpoint, pay).run(on_step)
    except BaseException as error:
        clear_frames(error.__traceback__)  # otherwise a stored error would keep the model on its device
        raise
    finally:
        release_memory()


class _Training:
    """The training loop in one process of the learner. rows: rows so far, by table of TrainResult. done: steps that
    were finished when the loop began or resumed."""

    def __init__(
        self, job: Job, sample: SampleFn, on_checkpoint: Callable[[Path], None], pay: Callable[[int, str], None]
    ) -> None:
        self.config, self.execution = job.config, job.execution
        self.workdir, self.problems = job.workdir, job.problems
        self.on_checkpoint = on_checkpoint
        if job.init_adapter is not None:
            adapter_config(job.init_adapter)
        given = job.base, job.problems, job.config, job.init_adapter, job.temperature
        self.recipe = checkpoints.recipe_hash(*given)
        former = checkpoints.recipe_hash(*given, identity=former_identity)
        saved = checkpoints.latest(job.workdir / "checkpoints", self.recipe, former)
        if saved is not None and bool(saved.remote) != (job.execution.service is not None):
            raise UserError(f"{job.workdir}: this training began with another engine; set hardware.engine to it")
        name = self.recipe[:12]
        if job.execution.service is not None:
            from tasks.engines.learning.tinker import RemoteModel, TinkerAdapters, TinkerUpdater

            model = RemoteModel(job, name, "" if saved is None else saved.remote, pay)
            self.updater = TinkerUpdater(model, job.config)
            self.adapters: Adapters = TinkerAdapters(model, job.config, job.workdir, name, True)
        else:
            policy = Policy(job.base, job.config, job.execution, job.temperature)
            self.updater = updater_for(policy, job.config, job.execution.token_budget)
            writes, stacked = parallel.rank_and_world()[0] == 0, job.execution.stacked_adapters
            self.adapters = Adapters(policy, job.config, job.workdir, name, writes, stacked)
            if job.init_adapter is not None:
                policy.lora.load(job.init_adapter, job.base)
        self.rollouts = StepRollouts(job.problems, job.config, self.adapters, sample)
        self.updater.start_here()
        self.done = 0
        self.rows: dict[str, list[Row]] = {"steps": [], "exposure": [], "diagnostics": []}
        if saved is not None:
            self.updater.restore(saved.tensors, saved.objective)
            self.done, self.rows = saved.step, saved.rows
        self._writer, self._writing = _like_this_thread(), None

    def run(self, on_step: Callable[[StepMetrics], None]) -> TrainResult:
        self._check_finite()
        self.adapters.serve(self.done)
        budget = self.config.token_budget
        try:
            for step in range(self.done + 1, self.config.steps + 1):
                if budget is not None and sum(row["num_tokens"] for row in self.rows["steps"]) >= budget:
                    self.adapters.stay(step)
                    break
                on_step(self._step(step))
            self.rollouts.evaluate_last()
        finally:
            self.rollouts.close()
            self.adapters.close()
            self._writer.shutdown(wait=True)
        self._written()
        return TrainResult(**self.rows, kept_adapters=self.adapters.finish())

    def _step(self, step: int) -> StepMetrics:
        clock = Clock()
        with clock.phase("sample"):
            groups = self.rollouts.of(step)
        self.rollouts.look_ahead(step + 1)
        with self.adapters.changing:
            row = self._updated(step, groups, clock)
        return StepMetrics(row, clock.seconds)

    def _updated(self, step: int, groups: Groups, clock: Clock) -> Row:
        """Update on these rollouts, save the state, serve the new weights, and return the step's row."""
        with clock.phase("sync"):
            self.adapters.written()
        key = {"seed": self.config.seed, "step": step}
        row = key | self.updater.update(groups, clock, step)
        self.rows["steps"].append(row)
        found = self.updater.diagnostics.items()
        self.rows["diagnostics"] += [{**key, "metric": name, "value": value} for name, value in found]
        self.rows["exposure"] += [
            {
                **key,
                "problem_id": problem_id,
                "source": group[0].source,
                "num_correct": sum(r.correct for r in group),
                "group_size": len(group),
                "live": is_live(group_rewards(group, self.config)),
            }
            for problem_id, group in groups.items()
        ]
        with clock.phase("checkpoint"):
            self._save(step)
        self._check_finite()
        with clock.phase("sync"):
            self.adapters.serve(step)
        return row

    def _save(self, step: int) -> None:
        """Write a checkpoint, in the background if checkpoints are asynchronous. The next one waits for its end."""
        self._written()
        if not self.adapters.writes:
            return
        rows = {name: list(table) for name, table in self.rows.items()}
        kept = self.updater.tensors(), rows, self.updater.remembered, self.updater.remote
        state = checkpoints.State(step, self.recipe, *kept)
        write = lambda: self.on_checkpoint(checkpoints.save(self.workdir / "checkpoints", state))  # noqa: E731
        self._writing = self._writer.submit(copy_context().run, write)
        if not self.execution.async_checkpoints:
            self._written()

    def _written(self) -> None:
        """Wait until the checkpoint is written. If writing failed, raise the error."""
        if self._writing is not None:
            self._writing.result()

    def _check_finite(self) -> None:
        """Raise UserError after too many skipped updates. A resumed training does so before it samples."""
        skipped = {row["step"]: row["skipped_updates"] for row in self.rows["steps"] if row["skipped_updates"]}
        if sum(skipped.values()) >= MAX_SKIPPED:
            self._written()
            raise UserError(
                f"training: {sum(skipped.values())} gradients were not finite (steps {', '.join(map(str, skipped))});"
                " the checkpoint keeps the weights from before them. Lower learning_rate or set grad_clip, and look at"
                " the behaviour log-probs of those steps"
            )


def _like_this_thread() -> ThreadPoolExecutor:
    """Return an executor with one thread that has this thread's number of OpenMP threads. A new thread would get all
    cores from OpenMP, but torch sets its own number once it is queried. An engine that meets two numbers fails, and the
    number decides the last bits of a sum."""
    return ThreadPoolExecutor(1, initializer=torch.get_num_threads)


class StepRollouts:
    """The groups of each step. sample: stores rollouts before it returns. Two calls never overlap."""

    def __init__(
        self, problems: Sequence[PromptProblem], config: LearnerConfig, adapters: Adapters, sample: SampleFn
    ) -> None:
        self.problems, self.config, self.adapters, self.sample = problems, config, adapters, sample
        self.schedule = prompt_schedule(problems, config)
        self._ahead: Future[list[TrainRollout]] | None = None
        self._thread = _like_this_thread()

    def of(self, step: int) -> Groups:
        """Return the step's groups by problem. With resampling, groups of further problems replace dead groups."""
        prompts, budget = self.schedule[step - 1], self.config.max_extra_groups
        groups = self._grouped(self._plan(step, prompts))
        spare = extra_prompts(self.problems, self.config, step, prompts) if budget else []
        while spare and budget and (lacking := len(prompts) - self._live(groups)) > 0:
            number = min(lacking, budget, len(spare))
            groups |= self._grouped(self._plan(step, tuple(spare[:number]), extra=True))
            spare, budget = spare[number:], budget - number
        return groups

    def look_ahead(self, step: int) -> None:
        """Start sampling the rollouts of `step`, whose policy is served already. `of` waits for them."""
        if self.config.staleness and step <= self.config.steps and self.adapters.writes:
            plan = self._plan(step, self.schedule[step - 1])
            self._ahead = self._thread.submit(copy_context().run, self.sample, plan)

    def evaluate_last(self) -> None:
        """Evaluate the policies from which no remaining step samples."""
        for policy_step in range(max(1, self.config.steps - self.config.staleness), self.config.steps + 1):
            if evaluated(self.config, policy_step):
                self._sampled(self._plan_of(self.config.steps + 1, (), policy_step, evaluate=True))

    def close(self) -> None:
        """Wait until rollouts in progress are stored, because they are paid for."""
        self._thread.shutdown(wait=True)

    def _plan(self, step: int, prompts: tuple[str, ...], *, extra: bool = False) -> StepPlan:
        policy_step = max(0, step - 1 - self.config.staleness)
        first_of_it = not extra and (step == 1 or policy_step > 0)
        return self._plan_of(step, prompts, policy_step, evaluate=first_of_it and evaluated(self.config, policy_step))

    def _plan_of(self, step: int, prompts: tuple[str, ...], policy_step: int, *, evaluate: bool) -> StepPlan:
        served, critic = self.adapters.served(policy_step), self.adapters.critic(policy_step)
        score = self.adapters.scorer(policy_step)
        return StepPlan(step, prompts, self.config.group_size, policy_step, served, evaluate, critic, score)

    def _live(self, groups: Groups) -> int:
        return sum(is_live(group_rewards(g, self.config)) for g in groups.values())

    def _sampled(self, plan: StepPlan) -> list[TrainRollout]:
        ahead, self._ahead = self._ahead, None
        if not self.adapters.writes:
            return parallel.from_first(None)
        return parallel.from_first(self.sample(plan) if ahead is None else ahead.result())

    def _grouped(self, plan: StepPlan) -> dict[str, list[TrainRollout]]:
        groups: dict[str, list[TrainRollout]] = {problem_id: [] for problem_id in plan.problem_ids}
        for rollout in sorted(self._sampled(plan), key=lambda r: r.rollout):
            groups[rollout.problem_id].append(rollout)
        for problem_id, group in groups.items():
            if len(group) != plan.group_size:
                raise RuntimeError(f"step {plan.step}: {len(group)} rollouts of {problem_id}, not {plan.group_size}")
        return groups


if __name__ == "__main__":  # another process of the learner, which gets job and rollouts from the first one
    from tasks.engines.learning import learner  # because pickled classes need the module's import name

    learner.train(**vars(parallel.join_team(*map(int, sys.argv[1:]))), sample=lambda _: [])
