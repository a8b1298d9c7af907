"""Check that an engine samples from the intended weights, before any of its rollouts counts.

After every change of weights the learner scores some of the first sampled tokens, and its log-probs are compared with
the engine's. Rounding changes log-probs by a known amount; wrong weights change them by more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from storage.errors import UserError
from tasks.domain.grpo.packing import PromptGroup, Trajectory
from tasks.domain.policies import Sampling

#: Number of scored tokens: at most TOKENS in all, at most EACH per rollout, and at least ENOUGH.
TOKENS, EACH, ENOUGH = 512, 64, 64
#: Rows of the forward pass. A rollout with a longer prompt is scored only if there is no other rollout.
ROWS = 8192


class Limits(NamedTuple):
    """Limits of `gap`, in nats. Up to `doubtful` the difference is rounding. Above `wrong` the weights are wrong.
    Between the two they are wrong if the base model without the adapter fits twice as well."""

    doubtful: float
    wrong: float


#: For engine and learner in float32. The largest measured gap was 1.1e-4 (a mixture).
EXACT = Limits(1e-3, 1e-2)
#: If one of the two is in bfloat16. Measured with merged and unmerged adapters, mixtures and dense models: at most
#: 0.028 (KL of 4e-4 per token) for the right weights; 0.19 to 0.27 for another adapter or none; 0.09 if adapters are a
#: tenth as large. At the limit, seven of 512 tokens may differ by 1 nat, as happens in a mixture.
ROUNDED = Limits(0.06, 0.12)


class Score(Protocol):
    """Returns the learner's log-probs of the tokens of all completions, in one vector. base: without the adapter."""

    def __call__(self, groups: Sequence[PromptGroup], temperature: float, *, base: bool = False) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class Sampled:
    """Some sampled tokens. behaviour_K: the engine's log-probs of them."""

    groups: Sequence[PromptGroup]
    behaviour_K: np.ndarray
    temperature: float
    top_p: float


def few(rows: Sequence[tuple[Sampling, Mapping[str, Any]]]) -> Sampled | None:
    """Return tokens to score from rows of the ledger that have the first row's sampling; None if they are too few. The
    log-probs of greedy rollouts are those at temperature 1."""
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
    """Return the root mean square difference between the log-probs of engine and learner, each clipped to 1.

    Squares separate the cases best: wrong weights give large differences at few tokens, rounding gives small ones at
    many. With top_p a token may be up to 1 / top_p times as probable, so the difference is the distance from this
    range. In a mixture one token in a thousand may differ much, because rounding selects another expert.

    >>> one = Sampled((), np.log([0.5, 0.2]), 1.0, 1.0)
    >>> round(gap(one, np.log([0.5, 0.1])), 3)  # log 2 / sqrt 2
    0.49
    """
    more_K = sampled.behaviour_K.astype(np.float64) - learned_K
    away_K = np.maximum(-more_K, more_K + np.log(sampled.top_p))
    # NaN counts as the largest difference
    return float(np.sqrt((np.nan_to_num(np.clip(away_K, 0, 1), nan=1.0) ** 2).mean()))


def refuse_other_weights(sampled: Sampled, score: Score, limits: Limits, who: str, engine: str) -> float:
    """Return the gap. Raise UserError if the engine samples from other weights. who: description of the policy."""
    found = gap(sampled, score(sampled.groups, sampled.temperature))
    if found <= limits.doubtful:
        return found
    of_base = gap(sampled, score(sampled.groups, sampled.temperature, base=True))
    if found <= limits.wrong and 2 * of_base > found:
        return found
    fits = f"; they fit the base model without an adapter ({of_base:.2g})" if 2 * of_base <= found else ""
    raise UserError(
        f"{who}: {engine} does not sample with the learner's weights. Over {len(sampled.behaviour_K)} tokens its"
        f" log-probs differ from the learner's by {found:.2g} nats, and rounding explains at most"
        f" {limits.doubtful:g}{fits}. Nothing of this was stored. Restart the engine, or its server with"
        " --logprobs-mode processed_logprobs, and give the same command again. If it happens again, set"
        " hardware.engine=transformers or another hardware.adapters"
    )
