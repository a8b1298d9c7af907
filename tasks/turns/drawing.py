"""A training's rollouts as its objective needs them: in one turn or three, with one answer or several, with the classes
of their traces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from storage.artifacts.kinds import Calibrations
from storage.errors import UserError
from tasks.domain.grpo.advantages.group import Candidate
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.second_scaffold import solutions, trace_classes
from tasks.domain.grpo.steps import TrainRollout
from tasks.domain.partitions.classes import Classes, by_trace
from tasks.domain.policies import Policy
from tasks.domain.scaffolds import Scaffold
from tasks.engines.grading.graders import GradeItem
from tasks.engines.sampling.sampler import RolloutRequest
from tasks.stage import store, toolbox
from tasks.turns.refining import Refining
from tasks.turns.trained import Row, Serve, as_train_rollout

#: Of the traces of a step, problem by problem.
Classify = Callable[[Sequence[Sequence[str | None]]], Sequence[Classes]]


@dataclass(frozen=True, slots=True)
class Turns:
    """learner: what is trained; start: the policy that it is trained from; second: the objective's own scaffold, null
    where it has none; calibration: of the encoder that tells traces apart, where the objective asks for one; context:
    tokens that a later turn's prompt and completion may have together, where it has later turns."""

    learner: LearnerConfig
    start: Policy
    second: Scaffold | None
    calibration: Calibrations | None
    context: int | None = None

    def __post_init__(self) -> None:
        needs, name = ADVANTAGES[self.learner.advantage].needs, self.learner.advantage
        if {"candidates", "refinements"} & {*needs} and self.second is None:
            raise UserError(f"learner: advantage {name} needs a scaffold of its own beside the arm's (second)")
        if "refinements" in needs and self.context is None:
            raise UserError(f"learner: advantage {name} needs to know how long its later turns may be (context)")
        if "vectors" in needs and self.calibration is None:
            raise UserError(f"learner: advantage {name} needs a calibrated encoder (calibration)")

    @property
    def own(self) -> Scaffold:
        return self.start.scaffold

    def drawn(self, requested: Sequence[RolloutRequest], serve: Serve, *, apart: bool = False) -> list[TrainRollout]:
        """The rollouts that are trained on, one for each that was requested. serve is called once a turn. apart: the
        critic, where it is trained too, is another policy than the generator by now; both start as one."""
        needs = ADVANTAGES[self.learner.advantage].needs
        if not requested:
            serve(requested)
            return []
        if self.second is not None and self.context is not None and "refinements" in needs:
            two = "agents" in needs
            dialogue = Refining(self.learner, self.start.model, self.own, self.second, self.context, two and apart)
            chains = dialogue.chains(requested, serve)
            return dialogue.drafted(chains) if two else dialogue.refined(chains)
        if self.second is not None and "candidates" in needs:
            asked = [replace(one, policy=replace(one.policy, scaffold=self.second)) for one in requested]
            rows = serve(asked).to_pylist()
            return self._with_candidates([as_train_rollout(r, self.own, self.learner.tag_rule) for r in rows], rows)
        rows = serve(requested).to_pylist()
        found = [as_train_rollout(row, self.own, self.learner.tag_rule) for row in rows]
        if "traces" in needs:
            return with_trace_classes(found, rows, lambda groups: [trace_classes(traces) for traces in groups])
        return with_trace_classes(found, rows, self.by_encoder, of_right=True) if "vectors" in needs else found

    def by_encoder(self, groups: Sequence[Sequence[str | None]]) -> Sequence[Classes]:
        """All traces in one call, on the encoder's device."""
        if not groups:
            return []
        assert self.calibration is not None
        told = store().manifest(self.calibration).recipe.arguments
        row = next(r for r in store().read(self.calibration).to_pylist() if r["partition"] == "trace")
        encoder = toolbox().embedder(str(told["encoder"]), str(told["weights_sha256"]), int(str(told["max_tokens"])))
        texts = [trace for group in groups for trace in group if trace]
        vectors_ND, _ = encoder.encode(texts)
        ends = np.cumsum([sum(map(bool, group)) for group in groups])[:-1]
        return [
            _in_place(group, by_trace(part_ND, row["threshold"]) if len(part_ND) else [])
            for group, part_ND in zip(groups, np.split(vectors_ND, ends), strict=True)
        ]

    def _with_candidates(self, rollouts: Sequence[TrainRollout], rows: Sequence[Row]) -> list[TrainRollout]:
        """Each with its solutions, judged one by one; right if one of them is, in form if all of them are."""
        number = self.learner.candidates
        texts = [solutions(row["completion"], number) for row in rows]
        items = [GradeItem(self.own, t, row["gold"]) for row, own in zip(rows, texts, strict=True) for t in own]
        verdicts = iter(toolbox().graders().grade(items))
        parsed = [[self.own.parse(text, self.learner.tag_rule) for text in own] for own in texts]
        right = [[next(verdicts).correct for _ in own] for own in texts]
        ways = _by_problem([[one.trace for one in own] for own in parsed], [r.problem_id for r in rollouts])
        found = []
        for rollout, own, forms, judged, classes in zip(rollouts, texts, parsed, right, ways, strict=True):
            told = (Candidate(c, len(t), way) for c, t, way in zip(judged, own, classes, strict=True))
            sound = len(own) == number and all(form.tag_valid for form in forms)
            found.append(replace(rollout, correct=any(judged), tag_valid=sound, candidates=tuple(told)))
        return found


def with_trace_classes(
    rollouts: Sequence[TrainRollout], rows: Sequence[Row], classify: Classify, *, of_right: bool = False
) -> list[TrainRollout]:
    """With the class of each trace among its problem's. rows: of the same rollouts. of_right: of problems with a right
    rollout alone."""
    groups = _places([rollout.problem_id for rollout in rollouts])
    if of_right:
        groups = [group for group in groups if any(rollouts[place].correct for place in group)]
    classed = list(rollouts)
    told = classify([[rows[place]["trace"] for place in group] for group in groups])
    for group, classes in zip(groups, told, strict=True):
        for place, found in zip(group, classes, strict=True):
            classed[place] = replace(rollouts[place], trace_class=found)
    return classed


def _by_problem(traces: Sequence[Sequence[str | None]], problems: Sequence[str]) -> list[Classes]:
    """The strategy of each trace of each rollout, among all of its problem."""
    ways: list[Classes] = [[] for _ in traces]
    for group in _places(problems):
        told = iter(trace_classes([trace for place in group for trace in traces[place]]))
        for place in group:
            ways[place] = [next(told) for _ in traces[place]]
    return ways


def _places(problems: Sequence[str]) -> list[list[int]]:
    places: dict[str, list[int]] = defaultdict(list)
    for place, problem in enumerate(problems):
        places[problem].append(place)
    return list(places.values())


def _in_place(traces: Sequence[str | None], found: Sequence[int]) -> Classes:
    """Classes of those that there are, null in the place of the others."""
    told = iter(found)
    return [next(told) if trace else None for trace in traces]
