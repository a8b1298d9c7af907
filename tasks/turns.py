"""How a training's rollouts come about and what an objective sees of them: one turn or three, one answer or several,
the classes of their traces.

A later turn's question is known by its content, as a search's is, so that a step that was killed between two turns asks
for the same again and pays for none twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.fingerprint import derived_seed
from storage.artifacts.kinds import Calibrations
from storage.errors import UserError
from tasks.domain.grpo.advantages.group import Candidate
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.classes import answer_key, trace_classes
from tasks.domain.grpo.second_scaffold import solutions
from tasks.domain.grpo.types import LearnerConfig, TrainRollout
from tasks.domain.partitions.by_trace import by_trace
from tasks.domain.partitions.classes import Classes
from tasks.domain.scaffolds import Scaffold, TagRule
from tasks.domain.search.method import Ask
from tasks.domain.search.method import Candidate as Seen
from tasks.domain.search.refine import criticising, refining
from tasks.engines.grading.graders import GradeItem
from tasks.engines.sampling.sampler import RolloutRequest
from tasks.stage import store, toolbox

#: Makes rollouts durable and reads them, in this order: rows of the ledger.
Serve = Callable[[Sequence[RolloutRequest]], pa.Table]
#: Of the traces of a step, problem by problem.
Classify = Callable[[Sequence[Sequence[str | None]]], Sequence[Classes]]


@dataclass(frozen=True, slots=True)
class Turns:
    """learner: what is trained; own: the arm's scaffold; second: the objective's own, null where it has none;
    calibration: of the encoder that tells traces apart, where the objective asks for one."""

    learner: LearnerConfig
    own: Scaffold
    second: Scaffold | None
    calibration: Calibrations | None

    def __post_init__(self) -> None:
        needs, name = ADVANTAGES[self.learner.advantage].needs, self.learner.advantage
        if {"candidates", "refinements"} & {*needs} and self.second is None:
            raise UserError(f"learner: advantage {name} needs a scaffold of its own beside the arm's (second)")
        if "vectors" in needs and self.calibration is None:
            raise UserError(f"learner: advantage {name} needs a calibrated encoder (calibration)")

    def drawn(self, requested: Sequence[RolloutRequest], serve: Serve) -> list[TrainRollout]:
        """The rollouts that are trained on, one for each that was requested. serve is called once a turn."""
        needs = ADVANTAGES[self.learner.advantage].needs
        if not requested:
            serve(requested)
            return []
        if self.second is not None and "candidates" in needs:
            asked = [replace(one, policy=replace(one.policy, scaffold=self.second)) for one in requested]
            rows = serve(asked).to_pylist()
            found = self._with_candidates([as_train_rollout(r, self.own, self.learner.tag_rule) for r in rows], rows)
        elif self.second is not None and "refinements" in needs:
            found, rows = self._refined(requested, self.second, serve)
        else:
            rows = serve(requested).to_pylist()
            found = [as_train_rollout(row, self.own, self.learner.tag_rule) for row in rows]
        if "traces" in needs:
            return with_trace_classes(found, rows, lambda groups: [trace_classes(traces) for traces in groups])
        return with_trace_classes(found, rows, self.by_encoder) if "vectors" in needs else found

    def by_encoder(self, groups: Sequence[Sequence[str | None]]) -> Sequence[Classes]:
        """All traces of a step in one call, on the encoder's device."""
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

    def _with_candidates(self, rollouts: Sequence[TrainRollout], rows: Sequence[dict[str, Any]]) -> list[TrainRollout]:
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

    def _refined(
        self, requested: Sequence[RolloutRequest], critic: Scaffold, serve: Serve
    ) -> tuple[list[TrainRollout], list[dict[str, Any]]]:
        """Drafts, a critique of each by the critic's scaffold, a refinement of each: the third turn's rollouts."""
        drafts = serve(requested).to_pylist()
        attempts = [
            _seen(Ask(index=one.rollout), one, row, f"{one.problem_id}/{one.rollout}")
            for one, row in zip(requested, drafts, strict=True)
        ]
        critiques, second = self._turn(
            requested,
            [criticising(one.problem, attempt) for one, attempt in zip(requested, attempts, strict=True)],
            critic,
            serve,
        )
        asks = [
            refining(one.problem, attempt, _seen(Ask(), asked, row, f"{asked.problem_id}/{asked.rollout}"))
            for one, attempt, asked, row in zip(requested, attempts, second, critiques, strict=True)
        ]
        rows, _ = self._turn(requested, asks, self.own, serve)
        found = []
        for one, row, *before in zip(requested, rows, drafts, critiques, strict=True):
            rollout = as_train_rollout(row, self.own, self.learner.tag_rule)
            spent = sum(len(r["token_ids"]) for r in before)
            found.append(replace(rollout, problem_id=one.problem_id, rollout=one.rollout, earlier_tokens=spent))
        return found, rows

    def _turn(
        self, requested: Sequence[RolloutRequest], asks: Sequence[Ask], scaffold: Scaffold, serve: Serve
    ) -> tuple[list[dict[str, Any]], list[RolloutRequest]]:
        asked = []
        for one, ask in zip(requested, asks, strict=True):
            context = ask.context(one.problem_id)
            seed = derived_seed(one.sampling.seed, context, ask.index)
            policy, gold = replace(one.policy, scaffold=scaffold), one.gold if ask.answers else ""
            assert ask.question is not None
            asked.append(RolloutRequest(context, one.source, ask.question, gold, ask.index, policy, one.sampling, seed))
        return serve(asked).to_pylist(), asked


def _seen(ask: Ask, request: RolloutRequest, row: dict[str, Any], name: str) -> Seen:
    names = ("completion", "trace", "finish", "num_tokens", "logprob_sum")
    return Seen(name=name, ask=ask, answer=row["canonical"], **{column: row[column] for column in names})


def as_train_rollout(row: dict[str, Any], scaffold: Scaffold, tag_rule: TagRule) -> TrainRollout:
    """What the learner needs of a ledger row."""
    return TrainRollout(
        problem_id=row["problem_id"],
        source=row["source"],
        rollout=row["rollout"],
        prompt_ids=row["prompt_ids"],
        token_ids=row["token_ids"],
        logprobs_T=np.asarray(row["logprobs"], np.float32),
        correct=row["correct"],
        tag_valid=scaffold.parse(row["completion"], tag_rule).tag_valid,
        truncated=row["finish"] == "length",
        answer=answer_key(row["canonical"], correct=row["correct"]),
    )


def with_trace_classes(
    rollouts: Sequence[TrainRollout], rows: Sequence[dict[str, Any]], classify: Classify
) -> list[TrainRollout]:
    """With the class of each trace among its problem's; rows: of the same rollouts."""
    groups = _places([rollout.problem_id for rollout in rollouts])
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
