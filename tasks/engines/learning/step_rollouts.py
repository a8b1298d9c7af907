"""The rollouts that a step trains on: its prompts, the policy they are asked of, and the next step's meanwhile.

With `staleness` 1 the rollouts of step s are of the policy after step s - 2, and sampled while step s - 1 trains. Whole
rollouts of one policy each, entered in the ledger under it, so a run that is killed asks for the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field

from tasks.domain.grpo.advantages.group import is_live
from tasks.domain.grpo.credit import Groups, group_rewards
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.steps import PromptProblem, StepPlan, TrainRollout, extra_prompts
from tasks.engines.learning import parallel
from tasks.engines.learning.adapters import Adapters, evaluated

SampleFn = Callable[[StepPlan], list[TrainRollout]]


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
