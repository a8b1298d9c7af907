"""How long engines decode rollouts of the published lengths, by measured ms a position: for what was not run whole."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from pathlib import Path

import numpy as np

from benchmarks.published_lengths import screening_lengths, step_lengths
from tasks.domain.grpo.types import StepPlan
from tasks.domain.statistics.intervals import LEVEL

GROUPS, SIZE, CAP = 8, 16, 12_288
#: Steps of thinking that are drawn, since none was measured.
DRAWS = 200


def by_rollouts(ms: dict[str, float]) -> dict[int, float]:
    """Milliseconds a position by rollouts at once, as measured.json has them.

    >>> by_rollouts({"8": 5.24})
    {8: 5.24}
    """
    return {int(n): value for n, value in ms.items()}


def drawn(published: Path, steps: int = 5) -> list[np.ndarray]:
    """Lengths of each step of a training of so many; five were measured."""
    problems = tuple(f"p{i}" for i in range(GROUPS))
    plans = [StepPlan(step, problems, SIZE, step - 1, None, False) for step in range(1, steps + 1)]
    return [np.array(step_lengths(published, plan, len(plans), CAP)) for plan in plans]


def alone(lengths_N: np.ndarray, ms: dict[int, float]) -> float:
    """Seconds of one engine that begins all at once.

    >>> round(alone(np.array([1000, 2000]), {1: 5.0, 2: 7.0}), 3)
    12.0
    """
    ends = np.concatenate([[0], np.sort(lengths_N)])
    at_once = len(lengths_N) - np.arange(len(lengths_N))
    return float((np.diff(ends) * np.interp(at_once, list(ms), list(ms.values()))).sum() / 1000)


def shared_out(lengths_N: np.ndarray, engines: int, ms: dict[int, float]) -> float:
    """Seconds until the last of several engines is done: rollouts are given out alike, as they come."""
    return max(alone(lengths_N[i::engines], ms) for i in range(engines))


def longest_first(lengths_N: np.ndarray, engines: int, ms: dict[int, float]) -> float:
    """As `shared_out`, if each rollout's length were known before: the longest are dealt out first."""
    return shared_out(np.sort(lengths_N)[::-1], engines, ms)


def thinking_step(published: Path, ms: dict[int, float]) -> tuple[float, float]:
    """(mean tokens of a rollout, mean seconds of sampling) of a step of thinking with AIME's lengths."""
    groups = screening_lengths(published, "thinking", DRAWS * GROUPS, SIZE, CAP)
    steps = [np.concatenate(groups[i : i + GROUPS]) for i in range(0, len(groups), GROUPS)]
    return float(np.mean(steps)), float(np.mean([alone(step, ms) for step in steps]))


def screened(lengths: Sequence[int], places: int, ms: dict[int, float]) -> float:
    """Seconds of one engine that begins the next rollout wherever one has ended, in the order given.

    >>> screened([1000, 2000, 1000], 2, {1: 5.0, 2: 7.0})
    14.0
    """
    ends: list[int] = []
    waiting, at, seconds = iter(lengths), 0, 0.0
    taken = (np.interp(np.arange(places + 1), list(ms), list(ms.values())) / 1000).tolist()
    for length in (next(waiting) for _ in range(min(places, len(lengths)))):
        heappush(ends, length)
    while ends:
        step = ends[0] - at
        seconds += step * taken[len(ends)]
        at = heappop(ends)
        if (following := next(waiting, None)) is not None:
            heappush(ends, at + following)
    return seconds


def mean_interval(values_N: np.ndarray) -> tuple[float, float, float]:
    """(mean, its ends by the t-distribution).

    >>> [round(end, 2) for end in mean_interval(np.array([1.0, 2.0, 3.0, 4.0]))]
    [2.5, 0.45, 4.55]
    """
    mean, half = float(values_N.mean()), float(_half(values_N))
    return mean, mean - half, mean + half


def covered(seconds_S: np.ndarray, n: int, draws: int = 20_000) -> float:
    """Share of means of `n` of these whose interval holds the mean of all."""
    drawn = np.random.default_rng(0).choice(seconds_S, (draws, n))
    return float(np.mean(np.abs(drawn.mean(-1) - seconds_S.mean()) < _half(drawn)))


def _half(values_N: np.ndarray) -> np.ndarray:
    from scipy.stats import t

    n = values_N.shape[-1]
    return t.ppf((1 + LEVEL) / 2, n - 1) * values_N.std(-1, ddof=1) / np.sqrt(n)
