"""A training's rollouts as its objective needs them: in one turn or three, with one answer or several, with classes of
their traces."""

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
from tasks.turns.refining import Refining, Row, Serve, as_train_rollout

#: Traces of a step by problem → their classes.
Classify = Callable[[Sequence[Sequence[str | None]]], Sequence[Classes]]


@dataclass(frozen=True, slots=True)
class Turns:
    """Settings of a training's rollouts. learner: its settings; start: the initial policy; second: the objective's
    second scaffold, or None; calibration: of the encoder for classes of traces, if the objective needs it; context:
    token limit of a later turn's prompt and completion, if there are later turns."""

    learner: LearnerConfig
    start: Policy
    second: Scaffold | None
    calibration: Calibrations | None
    context: int | None = None

    def __post_init__(self) -> None:
        for needs, given, name in (
            ({"candidates", "refinements"}, self.second, "a scaffold of its own beside the arm's (second)"),
            ({"refinements"}, self.context, "to know how long its later turns may be (context)"),
            ({"vectors"}, self.calibration, "a calibrated encoder (calibration)"),
        ):
            if needs & self.needs and given is None:
                raise UserError(f"learner: advantage {self.learner.advantage} needs {name}")

    @property
    def needs(self) -> set[str]:
        return {*ADVANTAGES[self.learner.advantage].needs}

    def drawn(self, requested: Sequence[RolloutRequest], serve: Serve, *, apart: bool = False) -> list[TrainRollout]:
        """Return one training rollout for each request. serve is called once per turn. apart: the critic is trained too
        and already differs from the generator; both start equal."""
        own, needs, second = self.start.scaffold, self.needs, self.second
        if not requested:
            serve(requested)
            return []
        if "refinements" in needs and second and self.context:
            two = "agents" in needs
            dialogue = Refining(self.learner, self.start.model, own, second, self.context, two and apart)
            chains = dialogue.chains(requested, serve)
            return list(map(dialogue.drafted if two else dialogue.refined, chains))
        if "candidates" in needs and second:
            requested = [replace(one, policy=replace(one.policy, scaffold=second)) for one in requested]
        rows = serve(requested).to_pylist()
        found = [as_train_rollout(row, own, self.learner.tag_rule) for row in rows]
        if "candidates" in needs:
            return self._with_candidates(found, rows)
        if "traces" in needs:
            return with_trace_classes(found, rows, lambda groups: [trace_classes(traces) for traces in groups])
        return with_trace_classes(found, rows, self.by_encoder, of_right=True) if "vectors" in needs else found

    def by_encoder(self, groups: Sequence[Sequence[str | None]]) -> Sequence[Classes]:
        """Classify all traces in one call, on the encoder's device."""
        if not groups:
            return []
        assert self.calibration is not None
        about = store().manifest(self.calibration).recipe.arguments
        row = next(r for r in store().read(self.calibration).to_pylist() if r["partition"] == "trace")
        encoder = toolbox().embedder(str(about["encoder"]), str(about["weights_sha256"]), int(str(about["max_tokens"])))
        vectors_ND, _ = encoder.encode([trace for group in groups for trace in group if trace])
        ends = np.cumsum([sum(map(bool, group)) for group in groups])[:-1]
        classed = []
        for group, part_ND in zip(groups, np.split(vectors_ND, ends), strict=True):
            found = iter(by_trace(part_ND, row["threshold"]) if len(part_ND) else [])
            classed.append([next(found) if trace else None for trace in group])
        return classed

    def _with_candidates(self, rollouts: Sequence[TrainRollout], rows: Sequence[Row]) -> list[TrainRollout]:
        """Add each rollout's solutions, graded separately. The rollout is correct if one is, and well-formed if all
        are."""
        scaffold, number = self.start.scaffold, self.learner.candidates
        texts = [solutions(row["completion"], number) for row in rows]
        items = [GradeItem(scaffold, t, row["gold"]) for row, own in zip(rows, texts, strict=True) for t in own]
        verdicts = iter(toolbox().graders().grade(items))
        parsed = [[scaffold.parse(text, self.learner.tag_rule) for text in own] for own in texts]
        ways: dict[int, Classes] = {}
        for group in _places(rollouts):
            classes = iter(trace_classes([one.trace for place in group for one in parsed[place]]))
            ways |= {place: [next(classes) for _ in parsed[place]] for place in group}
        found = []
        for place, (rollout, own, forms) in enumerate(zip(rollouts, texts, parsed, strict=True)):
            told = [Candidate(next(verdicts).correct, len(t), way) for t, way in zip(own, ways[place], strict=True)]
            sound = len(own) == number and all(form.tag_valid for form in forms)
            right = any(one.correct for one in told)
            found.append(replace(rollout, correct=right, tag_valid=sound, candidates=tuple(told)))
        return found


def with_trace_classes(
    rollouts: Sequence[TrainRollout], rows: Sequence[Row], classify: Classify, *, of_right: bool = False
) -> list[TrainRollout]:
    """Add the class of each trace within its problem. rows: of the same rollouts. of_right: only for problems with a
    correct rollout."""
    groups = [g for g in _places(rollouts) if not of_right or any(rollouts[place].correct for place in g)]
    classed = list(rollouts)
    for group, classes in zip(groups, classify([[rows[p]["trace"] for p in group] for group in groups]), strict=True):
        for place, found in zip(group, classes, strict=True):
            classed[place] = replace(rollouts[place], trace_class=found)
    return classed


def _places(rollouts: Sequence[TrainRollout]) -> list[list[int]]:
    """Return the indices of each problem's rollouts."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, rollout in enumerate(rollouts):
        places[rollout.problem_id].append(place)
    return list(places.values())
