"""Check that an engine samples from the weights that it was given, before anything that it sampled is kept.

After every change of weights a few of the first sampled tokens are scored by the learner. The engine's log-probs of
these tokens are compared with the learner's. Rounding keeps the two apart by a known amount; other weights by more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from storage.errors import UserError
from tasks.domain.grpo.packing import PromptGroup, Trajectory
from tasks.domain.policies import Sampling

#: Tokens that are scored: at most so many, of at most so many a rollout, and never fewer than ENOUGH.
TOKENS, EACH, ENOUGH = 512, 64, 64
#: Rows of the forward pass; a rollout whose prompt is longer is scored only where there is no other.
ROWS = 8192


class Limits(NamedTuple):
    """Distances of `gap`, in nats. Below `doubtful`: rounding. Above it the weights are wrong if the base model fits
    the tokens twice as well, and above `wrong` in any case."""

    doubtful: float
    wrong: float


#: Engine and learner in float32: 1.1e-4 is the largest distance that was measured (a mixture).
EXACT = Limits(1e-3, 1e-2)
#: Either in bfloat16: KL of sampler and learner was 4e-4 a token at most, which is a distance of 0.028, with merged and
#: unmerged adapters, on mixtures and dense models. Another arm's adapter, or none, was 0.19 to 0.27 away,
#: and 0.09 with adapters of a tenth of their size. Of 512 tokens seven may be 1 nat away, as in a mixture.
ROUNDED = Limits(0.06, 0.12)


class Score(Protocol):
    """Log-probs of the tokens of each completion, end to end, by the learner's forward pass.

    base: of the base model without the adapter.
    """

    def __call__(self, groups: Sequence[PromptGroup], temperature: float, *, base: bool = False) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class Sampled:
    """A few sampled tokens. behaviour_K: the engine's log-probs of them."""

    groups: Sequence[PromptGroup]
    behaviour_K: np.ndarray
    temperature: float
    top_p: float


def few(rows: Sequence[tuple[Sampling, Mapping[str, Any]]]) -> Sampled | None:
    """Choose tokens to score among rows of the ledger; None where they are too few to tell anything.

    All are of the sampling of the first row. A greedy draw has the log-probs of temperature 1.
    """
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
    """Return the root of the mean square of the engine's log-probs minus the learner's, each counted as 1 at most.

    Squares, since other weights are far off at few tokens, and rounding is a little off at many. A token of a truncated
    distribution is more probable by up to 1 / top_p: the distance is that from this range. One token in a thousand may
    be far off in a mixture of experts, where rounding chooses another expert.

    >>> one = Sampled((), np.log([0.5, 0.2]), 1.0, 1.0)
    >>> round(gap(one, np.log([0.5, 0.1])), 3)  # log 2 / sqrt 2
    0.49
    """
    more_K = sampled.behaviour_K.astype(np.float64) - learned_K
    away_K = np.maximum(-more_K, more_K + np.log(sampled.top_p))
    # not a number: as far off as can be
    return float(np.sqrt((np.nan_to_num(np.clip(away_K, 0, 1), nan=1.0) ** 2).mean()))


def refuse_other_weights(sampled: Sampled, score: Score, limits: Limits, who: str, engine: str) -> float:
    """Return the gap. who: the policy in words. Errors: UserError where the engine samples from other weights."""
    found = gap(sampled, score(sampled.groups, sampled.temperature))
    if found <= limits.doubtful:
        return found
    of_base = gap(sampled, score(sampled.groups, sampled.temperature, base=True))
    if found <= limits.wrong and 2 * of_base > found:
        return found
    fits = f"; they fit the base model without an adapter ({of_base:.2g})" if 2 * of_base <= found else ""
    raise UserError(
        f"{who}: {engine} samples from other weights than it was given: over {len(sampled.behaviour_K)} tokens its"
        f" log-probs are {found:.2g} nats away from the learner's, where rounding makes {limits.doubtful:g} at most"
        f"{fits}. Nothing of this was kept: restart the engine, or its server with --logprobs-mode"
        " processed_logprobs, and give the same command again; if it happens again, set hardware.engine=transformers"
        " or another hardware.adapters"
    )
