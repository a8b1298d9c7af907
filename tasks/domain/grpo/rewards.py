"""The reward of a rollout: a weighted sum of parts, which are built in or plug-ins (entry point `varband.rewards`).

A plug-in is a function `(problem, completion, answer, verdict, num_tokens, finish) -> float`. Only training uses
rewards. Accuracy, bands and evaluation count the part `correct` alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from storage.errors import UserError, did_you_mean
from tasks.domain.plugins import error_line, pinned, plugged, plugin_names
from tasks.domain.ranges import Checked, Real

if TYPE_CHECKING:
    from tasks.domain.grpo.learner_config import LearnerConfig
    from tasks.domain.grpo.steps import TrainRollout

GROUP = "varband.rewards"
#: Parts that reward the format of a completion.
OF_FORM = ("tag", "format")
#: The part that a judge model scores.
JUDGE = "judge"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardTerm(Checked):
    """A part of the reward by its name, and its weight."""

    name: str
    """Name of the part: see the table of rewards."""
    weight: Annotated[Real, Field(ge=-1e6, le=1e6)] = 1.0
    """Weight of the part in the sum."""
    model: str = ""
    """Model that scores, for `judge`: a name under `VARBAND_MODELS`, a folder, or `OWNER/NAME@COMMIT`."""
    rubric: str = ""
    """Yes-or-no question about the completion, for `judge`."""


def overlong(num_tokens: int, max_tokens: int, cache: int) -> float:
    """DAPO's soft overlong punishment (Yu et al. 2025, arXiv 2503.14476, eq. 13): zero up to max_tokens - cache tokens,
    then decreasing to -1 at max_tokens. A correct answer is worth 1 more than a wrong one here, and 2 in the paper.

    >>> [overlong(n, 100, 20) for n in (80, 90, 100, 120)]
    [0.0, -0.5, -1.0, -1.0]
    """
    return min(0.0, max(-1.0, (max_tokens - cache - num_tokens) / cache))


OWN: Mapping[str, Callable[[TrainRollout, LearnerConfig], float]] = {
    "correct": lambda rollout, _: float(rollout.correct),
    "tag": lambda rollout, _: float(rollout.tag_valid) - 1,
    "format": lambda rollout, _: float(rollout.tag_valid),
    "overlong": lambda rollout, c: overlong(len(rollout.token_ids), c.max_tokens or 0, c.overlong_cache),
    "length": lambda rollout, _: -len(rollout.token_ids) / 1000,
    JUDGE: lambda rollout, _: rollout.rewards[JUDGE],
}


def terms(config: LearnerConfig) -> tuple[RewardTerm, ...]:
    """Return the parts of a training's reward. The default parts are `correct`; `tag`, which subtracts `tag_weight` for
    invalid tags; with an `overlong_cache`, a penalty for the last tokens before `max_tokens`."""
    if config.rewards:
        return config.rewards
    named = {"correct": 1.0, "tag": config.tag_weight} | ({"overlong": 1.0} if config.overlong_cache else {})
    return tuple(RewardTerm(name=name, weight=weight) for name, weight in named.items())


def parts(rollout: TrainRollout, config: LearnerConfig) -> dict[str, float]:
    """Return the amount that each part adds to the reward of a rollout."""
    return {
        term.name: term.weight * (OWN[term.name](rollout, config) if term.name in OWN else rollout.rewards[term.name])
        for term in terms(config)
    }


def total(rollout: TrainRollout, config: LearnerConfig) -> float:
    """Return the reward of a rollout, rounded, because floats of equal sums may differ in their last digits."""
    return round(sum(parts(rollout, config).values()), 12)


def judge_of(config: LearnerConfig) -> RewardTerm | None:
    """Return the part that a model scores, if the reward has one."""
    return next((term for term in config.rewards if term.name == JUDGE), None)


def from_packages(config: LearnerConfig) -> list[str]:
    """Return the parts of the reward that are plug-ins."""
    return [term.name for term in config.rewards if term.name not in OWN]


def scored(config: LearnerConfig, *given: Any) -> dict[str, float]:
    """Return the unweighted parts of plug-ins. given: problem, completion, answer, verdict, num_tokens, finish. Raise
    UserError if a plug-in raises or does not return a finite number."""
    found: dict[str, float] = {}
    for name in from_packages(config):
        function: Any = plugged(GROUP, name)
        try:
            found[name] = float(function(*given))
        except UserError:
            raise
        except (Exception, SystemExit) as error:  # another package's code may raise anything
            raise UserError(f"reward {name} raised {error_line(error)} for the completion {given[1]!r:.80}") from None
        if not math.isfinite(found[name]):
            raise UserError(
                f"reward {name} returned {found[name]} for {given[1]!r:.80}; it must return a finite number"
            )
    return found


def try_rewards(config: LearnerConfig) -> None:
    """Call the plug-ins of the reward on two invented rollouts. Raise the errors of `scored`."""
    scored(config, "What is 3 + 4?", "3 + 4 = 7 <answer>7</answer>", "7", "correct", 12, "stop")
    scored(config, "What is 3 + 4?", "", None, "no_answer", 256, "length")


def reward_versions(config: LearnerConfig) -> Mapping[str, int | str]:
    """Return versions for fingerprints: of built-in parts whose rule changed, and of plug-ins. Version 2 rounds sums,
    which changes rewards only with a length penalty, or with a tag_weight that has no exact float."""
    if config.rewards:
        packages = {name: pinned(GROUP, name).partition("@")[2] for name in from_packages(config)}
        return {f"reward {name}": package for name, package in packages.items()}
    moved = any(round(correct - config.tag_weight, 12) != correct - config.tag_weight for correct in (0.0, 1.0))
    return ({"tag_weight": 2} if moved else {}) | ({"overlong_cache": 2} if config.overlong_cache else {})


def reward_mistakes(config: LearnerConfig) -> Iterator[str]:
    """Yield an error for each invalid part of the reward."""
    names = [term.name for term in config.rewards]
    for name in from_packages(config):
        if name.partition("@")[0] not in (known := [*OWN, *plugin_names(GROUP)]):
            yield f"unknown reward '{name}'{did_you_mean(name, known)} (known: {', '.join(known)})"
    if len({*names}) < len(names):
        yield f"rewards names one part twice: {', '.join(names)}; remove one"
    for term in config.rewards:
        if term.name == JUDGE and not term.model:
            yield "reward judge: set its model"
        if term.name != JUDGE and (term.model or term.rubric):
            yield f"reward {term.name}: only the reward 'judge' has a model and a rubric; leave them out"
    if names and bool(config.overlong_cache) != ("overlong" in names):
        yield "the reward 'overlong' and overlong_cache belong together: set both or neither"


def by_name(given: Any) -> Any:
    """Return the parts of a reward as a list of tables. They may be given by name, as `--set` and the file of a base
    study do; instead of a table a weight will do, and in a list a name.

    >>> by_name({"correct": 1, "length": {"weight": 0.5}})
    [{'weight': 1, 'name': 'correct'}, {'weight': 0.5, 'name': 'length'}]
    >>> by_name(["correct"])
    [{'name': 'correct'}]
    """
    if isinstance(given, Mapping):
        tables = {name: value if isinstance(value, Mapping) else {"weight": value} for name, value in given.items()}
        return [{**table, "name": name} for name, table in tables.items()]
    return [{"name": one} if isinstance(one, str) else one for one in given] if isinstance(given, list) else given
