"""Three turns: drafts, a critique of each by the critic's scaffold, and a refinement of each.

A later turn's question is identified by its content, as in a search, so that a resumed step requests the same and pays
nothing twice. A turn whose prompt exceeds the context is left out, and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.fingerprint import derived_seed
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.second_scaffold import answer_key
from tasks.domain.grpo.steps import TrainRollout
from tasks.domain.policies import AS_CRITIC, BaseModel, Policy
from tasks.domain.scaffolds import Scaffold, TagRule
from tasks.domain.search.method import Ask, Candidate
from tasks.domain.search.revision import criticising, refining
from tasks.engines.sampling.prompts import prompt_length, unfitting
from tasks.engines.sampling.sampler import RolloutRequest
from tasks.stage import progress, toolbox

Row = dict[str, Any]
#: Samples one turn's requests durably; returns their ledger rows, in order.
Serve = Callable[[Sequence[RolloutRequest]], pa.Table]
#: The request of a later turn and its ledger row.
Turn = tuple[RolloutRequest, Row]


def as_train_rollout(row: Row, scaffold: Scaffold, tag_rule: TagRule) -> TrainRollout:
    """Return the learner's view of a ledger row."""
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
    """A draft with its critique and refinement; None if a prompt exceeded the context."""

    request: RolloutRequest
    draft: Row
    critique: Row | None
    refinement: Row | None

    @property
    def right(self) -> bool:
        """Whether it ends in a correct answer; False if it was cut."""
        return self.refinement is not None and self.refinement["correct"]

    @property
    def later_tokens(self) -> int:
        return sum(len(row["token_ids"]) for row in (self.critique, self.refinement) if row)


@dataclass(frozen=True, slots=True)
class Refining:
    """context: limit of a prompt with its completion. apart: critiques are sampled from another policy than drafts."""

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
        wanted: list[RolloutRequest | None] = [
            _later(one, criticising(one.problem, attempt), self._critic_of(one.policy))
            for one, attempt in zip(requested, attempts, strict=True)
        ]
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
        """Return the refinement; if it was cut, the draft marked as truncated and wrong."""
        row = chain.refinement or chain.draft
        found = as_train_rollout(row, self.own, self.learner.tag_rule)
        if chain.refinement is None:
            return replace(found, correct=False, answer=None, truncated=True, other_tokens=chain.later_tokens)
        others = len(chain.draft["token_ids"]) + chain.later_tokens - len(row["token_ids"])
        return replace(found, problem_id=chain.request.problem_id, rollout=chain.request.rollout, other_tokens=others)

    def drafted(self, chain: Chain) -> TrainRollout:
        """Return the draft with its critique, which counts as correct if the refinement is."""
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

    def _critic_of(self, policy: Policy) -> Policy:
        return replace(policy, scaffold=self.critic, role=AS_CRITIC if self.apart else policy.role)

    def _turn(self, name: str, wanted: Sequence[RolloutRequest | None], serve: Serve) -> list[Turn | None]:
        """Return each request's result; None if there was no request or it does not fit."""
        generator = toolbox().generator(self.model.sha256, self.learner.lora_rank)
        lengths = {place: prompt_length(one, generator) for place, one in enumerate(wanted) if one is not None}
        asked = {p: one for p, n in lengths.items() if (one := wanted[p]) and n + one.max_tokens <= self.context}
        if cut := len(lengths) - len(asked):
            why = unfitting(max(lengths.values()), next(filter(None, wanted)).sampling.max_tokens, self.context)
            message = f"{cut} of {len(wanted)} drafts have no {name}: {why} (hardware.max_model_len)"
            progress(len(wanted) - cut, len(wanted), "rollouts", message, event="noted")
        rows = serve(list(asked.values())).to_pylist() if asked else []
        came = dict(zip(asked, zip(asked.values(), rows, strict=True), strict=True))
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
