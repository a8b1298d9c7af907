"""Three turns: drafts, a critique of each by the critic's scaffold, a refinement of each that heeds it.

A later turn's question is known by its content, as a search's is, so that a step that was killed between two turns asks
for the same again and pays for none twice. A turn whose prompt outgrows the context is not asked, and that is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from storage.artifacts.fingerprint import derived_seed
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.steps import TrainRollout
from tasks.domain.policies import AS_CRITIC, BaseModel, Policy
from tasks.domain.scaffolds import Scaffold
from tasks.domain.search.method import Ask, Candidate
from tasks.domain.search.revision import criticising, refining
from tasks.engines.sampling.prompts import prompt_length, unfitting
from tasks.engines.sampling.sampler import RolloutRequest
from tasks.stage import progress, toolbox
from tasks.turns.trained import Row, Serve, as_train_rollout

#: A later turn and what came of it.
Turn = tuple[RolloutRequest, Row]


@dataclass(frozen=True, slots=True)
class Chain:
    """A draft and what followed on it; null where a prompt outgrew the context."""

    request: RolloutRequest
    draft: Row
    critique: Row | None
    refinement: Row | None

    @property
    def right(self) -> bool:
        """Whether it ends in a right answer; one that was cut does not end in any."""
        return self.refinement is not None and self.refinement["correct"]

    @property
    def later_tokens(self) -> int:
        return sum(len(row["token_ids"]) for row in (self.critique, self.refinement) if row)


@dataclass(frozen=True, slots=True)
class Refining:
    """context: tokens that a prompt and its completion may have together. apart: whether critiques are of another
    policy than drafts."""

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
        wanted = [
            _asked(one, criticising(one.problem, attempt), self._critic_of)
            for one, attempt in zip(requested, attempts, strict=True)
        ]
        critiques = self._turn("critique", wanted, serve)
        wanted = []
        for one, attempt, turn in zip(requested, attempts, critiques, strict=True):
            if turn is None:
                wanted.append(None)
                continue
            asked, row = turn
            critique = _seen(Ask(), row, f"{asked.problem_id}/{asked.rollout}")
            wanted.append(_asked(one, refining(one.problem, attempt, critique), lambda policy: policy))
        refinements = self._turn("refinement", wanted, serve)
        return [
            Chain(one, draft, critique and critique[1], refinement and refinement[1])
            for one, draft, critique, refinement in zip(requested, drafts, critiques, refinements, strict=True)
        ]

    def refined(self, chains: Sequence[Chain]) -> list[TrainRollout]:
        """The refinements; in the place of one that was cut its draft, as a rollout that was cut before its answer."""
        return [self._refined(chain) for chain in chains]

    def drafted(self, chains: Sequence[Chain]) -> list[TrainRollout]:
        """The drafts, each with its critique, which is right if the refinement is."""
        return [
            replace(
                as_train_rollout(chain.draft, self.own, self.learner.tag_rule),
                other_tokens=chain.later_tokens,
                critique=self._criticised(chain),
            )
            for chain in chains
        ]

    def _refined(self, chain: Chain) -> TrainRollout:
        one, row, spent = chain.request, chain.refinement or chain.draft, len(chain.draft["token_ids"])
        found = as_train_rollout(row, self.own, self.learner.tag_rule)
        if chain.refinement is None:
            return replace(found, correct=False, answer=None, truncated=True, other_tokens=chain.later_tokens)
        spent += chain.later_tokens - len(row["token_ids"])
        return replace(found, problem_id=one.problem_id, rollout=one.rollout, other_tokens=spent)

    def _criticised(self, chain: Chain) -> TrainRollout | None:
        if chain.critique is None:
            return None
        one = chain.request
        found = as_train_rollout(chain.critique, self.critic, self.learner.tag_rule)
        return replace(
            found,
            problem_id=one.problem_id,
            rollout=one.rollout,
            correct=chain.right,
            answer=None,
            of_right_draft=chain.draft["correct"],
        )

    def _critic_of(self, policy: Policy) -> Policy:
        return replace(policy, scaffold=self.critic, role=AS_CRITIC if self.apart else policy.role)

    def _turn(self, what: str, wanted: Sequence[RolloutRequest | None], serve: Serve) -> list[Turn | None]:
        """What came of each; null where it was not wanted or does not fit."""
        generator = toolbox().generator(self.model.sha256, self.learner.lora_rank)
        lengths = [0 if one is None else prompt_length(one, generator) for one in wanted]
        cut = [
            one is not None and n + one.sampling.max_tokens > self.context
            for one, n in zip(wanted, lengths, strict=True)
        ]
        if any(cut):
            why = unfitting(max(lengths), next(filter(None, wanted)).sampling.max_tokens, self.context)
            said = f"{sum(cut)} of {len(wanted)} drafts have no {what}: {why} (hardware.max_model_len)"
            progress(len(wanted) - sum(cut), len(wanted), "rollouts", said, event="noted")
        asked = [one for one, left_out in zip(wanted, cut, strict=True) if one is not None and not left_out]
        came = iter(zip(asked, serve(asked).to_pylist(), strict=True) if asked else ())
        return [None if one is None or left_out else next(came) for one, left_out in zip(wanted, cut, strict=True)]


def _asked(one: RolloutRequest, ask: Ask, whose: Callable[[Policy], Policy]) -> RolloutRequest:
    context = ask.context(one.problem_id)
    assert ask.question is not None
    return replace(
        one,
        problem_id=context,
        problem=ask.question,
        gold=one.gold if ask.answers else "",
        rollout=ask.index,
        policy=whose(one.policy),
        request_seed=derived_seed(one.sampling.seed, context, ask.index),
    )


def _seen(ask: Ask, row: Row, name: str) -> Candidate:
    names = ("completion", "trace", "finish", "num_tokens", "logprob_sum")
    return Candidate(name=name, ask=ask, answer=row["canonical"], **{column: row[column] for column in names})
