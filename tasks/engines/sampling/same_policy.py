"""Check that an engine samples from the intended weights, before any of its rollouts is stored.

After every change of weights the learner scores a few of the first sampled tokens, and the log-probs of engine and
learner are compared. Rounding changes log-probs by a known amount; other weights change them by more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from storage.errors import UserError
from tasks.domain.grpo.packing import PromptGroup, Trajectory
from tasks.domain.policies import Sampling

#: Scored tokens: at most TOKENS, at most EACH per rollout, at least ENOUGH.
TOKENS, EACH, ENOUGH = 512, 64, 64
#: Rows of the forward pass; a rollout with a longer prompt is scored only if there is no other.
ROWS = 8192


class Limits(NamedTuple):
    """Limits of `gap`, in nats. Up to `doubtful` the difference is rounding. Between both limits weights count as wrong
    if the base model fits twice as well; above `wrong` they always do."""

    doubtful: float
    wrong: float


#: Engine and learner in float32; the largest measured distance was 1.1e-4 (a mixture).
EXACT = Limits(1e-3, 1e-2)
#: Either in bfloat16. Measured: at most 0.028 (KL of 4e-4 per token) for right weights, with merged and unmerged
#: adapters, mixtures and dense models; 0.19 to 0.27 for another adapter or none, 0.09 if adapters are a tenth as large.
#: The limit allows seven of 512 tokens to differ by 1 nat, as in a mixture.
ROUNDED = Limits(0.06, 0.12)


class Score(Protocol):
    """Return the learner's log-probs of the tokens of each completion, concatenated. base: without the adapter."""

    def __call__(self, groups: Sequence[PromptGroup], temperature: float, *, base: bool = False) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class Sampled:
    """A few sampled tokens. behaviour_K: their log-probs by the engine."""

    groups: Sequence[PromptGroup]
    behaviour_K: np.ndarray
    temperature: float
    top_p: float


def few(rows: Sequence[tuple[Sampling, Mapping[str, Any]]]) -> Sampled | None:
    """Choose tokens to score from rows of the ledger, all with the first row's sampling; None if there are too few.
    Greedy rollouts have log-probs at temperature 1."""
    how = rows[0][0]
    alike = [row for sampling, row in rows if (sampling.temperature, sampling.top_p) == (how.temperature, how.top_p)]
    found: dict[tuple[int, ...], list[Trajectory]] = {}
    count = height = 0
    for place, row in enumerate(sorted(alike, key=lambda row: len(row["prompt_ids"]))):
        prompt, logprobs_T = tuple(row["prompt_ids"]), np.asarray(row["logprobs"][:EACH], np.float32)
        height += len(logprobs_T) + (0 if prompt in found else len(prompt))
        if count >= TOKENS or (found and height > ROWS):
            break
        if known := int(np.isfinite(logprobs_T).sum()):
            one = Trajectory(place, row["token_ids"][:EACH], logprobs_T, 0.0)
            found.setdefault(prompt, []).append(one)
            count += known
    if count < ENOUGH:
        return None
    groups = [PromptGroup(prompt, trajectories) for prompt, trajectories in found.items()]
    behaviour_K = np.concatenate([one.behaviour_T for group in groups for one in group.trajectories])
    return Sampled(groups, behaviour_K[np.isfinite(behaviour_K)], how.temperature or 1.0, how.top_p)


def gap(sampled: Sampled, learned_K: np.ndarray) -> float:
    """Return the root mean square difference between the engine's and the learner's log-probs, each clipped to 1.

    Squares separate the two cases best: other weights differ much at few tokens, rounding differs little at many. With
    top_p, a token may be up to 1 / top_p times as probable, so the gap is the distance from this range. In a mixture
    one token in a thousand may differ much, because rounding selects another expert.

    >>> one = Sampled((), np.log([0.5, 0.2]), 1.0, 1.0)
    >>> round(gap(one, np.log([0.5, 0.1])), 3)  # log 2 / sqrt 2
    0.49
    """
    more_K = sampled.behaviour_K.astype(np.float64) - learned_K
    away_K = np.maximum(-more_K, more_K + np.log(sampled.top_p))
    # NaN counts as the largest distance
    return float(np.sqrt((np.nan_to_num(np.clip(away_K, 0, 1), nan=1.0) ** 2).mean()))


def refuse_other_weights(sampled: Sampled, score: Score, limits: Limits, who: str, engine: str) -> float:
    """Return the gap. who: description of the policy. Errors: UserError if the engine samples from other weights."""
    found = gap(sampled, score(sampled.groups, sampled.temperature))
    if found <= limits.doubtful:
        return found
    of_base = gap(sampled, score(sampled.groups, sampled.temperature, base=True))
    if found <= limits.wrong and 2 * of_base > found:
        return found
    fits = f"; they fit the base model without an adapter ({of_base:.2g})" if 2 * of_base <= found else ""
    raise UserError(
        f"{who}: {engine} samples with other weights than the learner's: over {len(sampled.behaviour_K)} tokens its"
        f" log-probs differ from the learner's by {found:.2g} nats, and rounding explains at most {limits.doubtful:g}"
        f"{fits}. Nothing of this was stored: restart the engine, or its server with --logprobs-mode"
        " processed_logprobs, and give the same command again; if it happens again, set hardware.engine=transformers"
        " or another hardware.adapters"
    )
