"""Sample a training's rollouts as its objective needs them: in one turn or three, with one answer or several, by one
agent or two, with or without classes of traces.

In three turns a model writes a draft, a critique of the draft, and a refinement that follows the critique. The critique
has its own scaffold. Requests of later turns are identified by their content. So a step that was killed between two
turns repeats the same requests, and no rollout is paid for twice. A turn whose prompt exceeds the context is left out
and reported.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.fingerprint import derived_seed
from storage.artifacts.schemas import Calibrations
from storage.errors import UserError
from tasks.domain.grpo.advantages.group import Candidate as Solution
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.rewards import JUDGE, RewardTerm, from_packages, judge_of, scored
from tasks.domain.grpo.second_scaffold import answer_key, solutions, trace_classes
from tasks.domain.grpo.steps import TrainRollout
from tasks.domain.partitions import Classes, by_trace
from tasks.domain.policies import AS_CRITIC, BaseModel, Policy
from tasks.domain.scaffolds import Scaffold, TagRule
from tasks.domain.search.method import Ask, Candidate
from tasks.domain.search.revision import criticising, refining
from tasks.engines.grading.graders import GradeItem
from tasks.engines.sampling.prompts import prompt_length, unfitting
from tasks.engines.sampling.sampler import RolloutRequest
from tasks.metering import at_work_here
from tasks.stage import progress, store, toolbox

Row = dict[str, Any]
#: Columns that reward plug-ins get, after the problem.
SCORED = ("completion", "answer", "verdict", "num_tokens", "finish")
#: Samples one turn's requests durably, and returns their ledger rows, in order.
Serve = Callable[[Sequence[RolloutRequest]], pa.Table]
#: The request of a later turn and its ledger row.
Turn = tuple[RolloutRequest, Row]


def as_train_rollout(row: Row, scaffold: Scaffold, tag_rule: TagRule) -> TrainRollout:
    """Return a ledger row in the form that the learner needs."""
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
        answer=answer_key(row["canonical"], correct=row["correct"], kind=scaffold.answer_kind),
    )


@dataclass(frozen=True, slots=True)
class Chain:
    """A draft with its critique and refinement. Critique or refinement is None if its prompt exceeded the context."""

    request: RolloutRequest
    draft: Row
    critique: Row | None
    refinement: Row | None

    @property
    def right(self) -> bool:
        """Return whether the refinement is correct; False if there is none."""
        return self.refinement is not None and self.refinement["correct"]

    @property
    def later_tokens(self) -> int:
        return sum(len(row["token_ids"]) for row in (self.critique, self.refinement) if row)


@dataclass(frozen=True, slots=True)
class Refining:
    """Sampling in three turns. context: most tokens of a prompt and completion. apart: critics have an own policy."""

    learner: LearnerConfig
    model: BaseModel
    own: Scaffold
    critic: Scaffold
    context: int
    apart: bool

    def chains(self, requested: Sequence[RolloutRequest], serve: Serve) -> list[Chain]:
        drafts = serve(requested).to_pylist()
        attempts = [
            _seen(Ask(index=one.rollout), row, f"{one.problem_id}/{one.rollout}")
            for one, row in zip(requested, drafts, strict=True)
        ]
        wanted = list[RolloutRequest | None]()
        for one, attempt in zip(requested, attempts, strict=True):
            critic = replace(one.policy, scaffold=self.critic, role=AS_CRITIC if self.apart else one.policy.role)
            wanted.append(_later(one, criticising(one.problem, attempt), critic))
        critiques = self._turn("critique", wanted, serve)
        wanted = []
        for one, attempt, turn in zip(requested, attempts, critiques, strict=True):
            critique = turn and _seen(Ask(), turn[1], f"{turn[0].problem_id}/{turn[0].rollout}")
            wanted.append(critique and _later(one, refining(one.problem, attempt, critique), one.policy))
        refinements = self._turn("refinement", wanted, serve)
        return [
            Chain(one, draft, critique and critique[1], refinement and refinement[1])
            for one, draft, critique, refinement in zip(requested, drafts, critiques, refinements, strict=True)
        ]

    def refined(self, chain: Chain) -> TrainRollout:
        """Return a draft's refinement for training, or else the draft, marked as truncated and wrong."""
        row = chain.refinement or chain.draft
        found = as_train_rollout(row, self.own, self.learner.tag_rule)
        if chain.refinement is None:
            return replace(found, correct=False, answer=None, truncated=True, other_tokens=chain.later_tokens)
        others = len(chain.draft["token_ids"]) + chain.later_tokens - len(row["token_ids"])
        return replace(found, problem_id=chain.request.problem_id, rollout=chain.request.rollout, other_tokens=others)

    def drafted(self, chain: Chain) -> TrainRollout:
        """Return the draft with its critique. The critique counts as correct if the refinement is."""
        critique = chain.critique and replace(
            as_train_rollout(chain.critique, self.critic, self.learner.tag_rule),
            problem_id=chain.request.problem_id,
            rollout=chain.request.rollout,
            correct=chain.right,
            answer=None,
            of_right_draft=chain.draft["correct"],
        )
        draft = as_train_rollout(chain.draft, self.own, self.learner.tag_rule)
        return replace(draft, other_tokens=chain.later_tokens, critique=critique or None)

    def _turn(self, name: str, wanted: Sequence[RolloutRequest | None], serve: Serve) -> list[Turn | None]:
        """Sample one turn. Return each request with its row; None without a request, or if its prompt does not fit."""
        generator = toolbox().generator(self.model.sha256, self.learner.lora_rank)
        lengths = {place: prompt_length(one, generator) for place, one in enumerate(wanted) if one is not None}
        fitting = {p: one for p, n in lengths.items() if (one := wanted[p]) and n + one.max_tokens <= self.context}
        if cut := len(lengths) - len(fitting):
            why = unfitting(max(lengths.values()), next(filter(None, wanted)).sampling.max_tokens, self.context)
            message = f"{cut} of {len(wanted)} drafts have no {name}: {why} (hardware.max_model_len)"
            progress(len(wanted) - cut, len(wanted), "rollouts", message, event="noted")
        rows = serve(list(fitting.values())).to_pylist() if fitting else []
        came = dict(zip(fitting, zip(fitting.values(), rows, strict=True), strict=True))
        return [came.get(place) for place in range(len(wanted))]


def _later(one: RolloutRequest, ask: Ask, policy: Policy) -> RolloutRequest:
    context = ask.context(one.problem_id)
    return replace(
        one,
        problem_id=context,
        problem=ask.question or "",
        gold=one.gold if ask.answers else "",
        rollout=ask.index,
        policy=policy,
        request_seed=derived_seed(one.sampling.seed, context, ask.index),
    )


def _seen(ask: Ask, row: Row, name: str) -> Candidate:
    names = ("completion", "trace", "finish", "num_tokens", "logprob_sum")
    return Candidate(name=name, ask=ask, answer=row["canonical"], **{column: row[column] for column in names})


#: Returns the classes of a step's traces, problem by problem.
Classify = Callable[[Sequence[Sequence[str | None]]], Sequence[Classes]]


@dataclass(frozen=True, slots=True)
class Turns:
    """Settings of a training's rollouts. learner: its settings. start: the initial policy. second: the objective's
    second scaffold, or None. calibration: the encoder's threshold, if the objective needs classes of traces. context:
    most tokens of a later turn's prompt and completion, if there are later turns."""

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

    def sampled(self, requested: Sequence[RolloutRequest], serve: Serve, *, apart: bool = False) -> list[TrainRollout]:
        """Return one training rollout for each request. `serve` is called once per turn. apart: the critic is trained
        too, and by now differs from the generator, with whose weights it started."""
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
        if from_packages(self.learner):
            found = [
                replace(rollout, rewards=scored(self.learner, one.problem, *(row[name] for name in SCORED)))
                for rollout, one, row in zip(found, requested, rows, strict=True)
            ]
        if judge := judge_of(self.learner):
            found = judged(found, requested, rows, judge)
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
        """Add the graded solutions of each rollout, which is correct if one solution is, and well-formed if all are."""
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
            graded = [Solution(next(verdicts).correct, len(t), way) for t, way in zip(own, ways[place], strict=True)]
            sound = len(own) == number and all(form.tag_valid for form in forms)
            right = any(one.correct for one in graded)
            found.append(replace(rollout, correct=right, tag_valid=sound, candidates=tuple(graded)))
        return found


def judged(
    rollouts: Sequence[TrainRollout], requested: Sequence[RolloutRequest], rows: Sequence[Row], judge: RewardTerm
) -> list[TrainRollout]:
    """Add the judge's score of each completion. A completion that is too long for the judge scores 0."""
    model = toolbox().reward_model(judge.model.removeprefix("sha256:"))
    texts = [
        (one.problem, row["completion"], row["finish"] == "stop") for one, row in zip(requested, rows, strict=True)
    ]
    with at_work_here():
        readings = model.score(texts, judge.rubric)
    if cut := sum(one.score is None for one in readings):
        message = f"{cut} of {len(rows)} completions are longer than the judge can read, and score 0"
        progress(len(rows) - cut, len(rows), "rollouts", message, event="noted")
    return [
        replace(rollout, rewards={**rollout.rewards, JUDGE: reading.score or 0.0})
        for rollout, reading in zip(rollouts, readings, strict=True)
    ]


def with_trace_classes(
    rollouts: Sequence[TrainRollout], rows: Sequence[Row], classify: Classify, *, of_right: bool = False
) -> list[TrainRollout]:
    """Add the class of each trace within its problem. of_right: only for problems with a correct rollout."""
    groups = [g for g in _places(rollouts) if not of_right or any(rollouts[place].correct for place in g)]
    classed = list(rollouts)
    for group, classes in zip(groups, classify([[rows[p]["trace"] for p in group] for group in groups]), strict=True):
        for place, found in zip(group, classes, strict=True):
            classed[place] = replace(rollouts[place], trace_class=found)
    return classed


def _places(rollouts: Sequence[TrainRollout]) -> list[list[int]]:
    places: dict[str, list[int]] = defaultdict(list)
    for place, rollout in enumerate(rollouts):
        places[rollout.problem_id].append(place)
    return list(places.values())
