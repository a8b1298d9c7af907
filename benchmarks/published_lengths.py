"""Lengths of rollouts as the published study wrote them, for engines whose weights are random and never end by themselves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tasks.domain.grpo.types import StepPlan

#: Labels of `reports/diversity_analysis_aime`, which has a problem's mean length and its spread.
LABELS = {"panel": "panel_aime", "thinking": "thinking_aime"}


def problem_lengths(published: Path, arm: str) -> list[tuple[float, float]]:
    """(mean tokens, coefficient of variation) of each problem of AIME, of the arm's rollouts."""
    rows = _rows(published / "reports/diversity_analysis_aime/per_problem.jsonl")
    return [(row["len_mean"], row["len_cv"]) for row in rows if row["label"] == LABELS[arm]]


def step_lengths(published: Path, plan: StepPlan, steps: int, cap: int) -> list[int]:
    """Tokens of each rollout of a step of the published training, a problem's together: the mean of the batch that lies
    as far into it; problems differ, and a problem's rollouts, as the panel's do on AIME. Log-normal, cut at `cap`."""
    batches = _rows(published / "reports/olympiad_panel_only/train_per_batch.jsonl")
    mean = batches[(plan.step - 1) * len(batches) // steps]["ac_tokens_per_turn"]
    problems = problem_lengths(published, "panel")
    draw = np.random.default_rng(plan.step)
    chosen = [problems[i] for i in draw.integers(0, len(problems), len(plan.problem_ids))]
    relative = mean / np.mean([m for m, _ in problems])
    return [length for m, cv in chosen for length in _drawn(draw, m * relative, cv, plan.group_size, cap)]


def screening_lengths(
    published: Path, arm: str, problems: int, size: int, cap: int, again: int | None = None
) -> list[list[int]]:
    """Tokens of each rollout of a screening, by problem, as if each of its problems were one of AIME's.

    again: the how-manieth time AIME's own problems, of which there are few, are drawn anew; null: as they are."""
    known, draw = problem_lengths(published, arm), np.random.default_rng(0)
    if again is not None:
        redraw = np.random.default_rng((1, again))
        known, draw = [known[i] for i in redraw.integers(0, len(known), len(known))], redraw
    return [_drawn(draw, known[i][0], known[i][1], size, cap) for i in draw.integers(0, len(known), problems)]


def _drawn(draw: np.random.Generator, mean: float, cv: float, size: int, cap: int) -> list[int]:
    sigma = np.sqrt(np.log1p(cv**2))
    lengths = draw.lognormal(np.log(mean) - sigma**2 / 2, sigma, size)
    return np.clip(lengths.round(), 1, cap).astype(int).tolist()


def _rows(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]
