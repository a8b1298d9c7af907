"""Kinds that only the published study's files make."""

from __future__ import annotations

from storage.artifacts.ref import Ref
from storage.artifacts.schemas import nullable


class Groups(
    Ref,
    kind="groups",
    schema=nullable(
        "arm str, step int, adapter str, seed big, problem_id str, source str",
        "group_size int, num_correct int, num_tokens big, truncated int",
    ),
):
    """Counts of groups whose rollouts were never published."""


class TrainingPools(Ref, kind="training_pools", schema=nullable("pool str, problem_id str, source str")):
    """Which problems each published set holds."""


class TrainingSeries(Ref, kind="training_series", schema=nullable("arm str, step int, metric str, value real, n big")):
    """The published training's series by step."""


class TokenChecks(
    Ref,
    kind="token_checks",
    schema=nullable("bench str, check str, printed real, follows real, holds bool, detail str"),
):
    """The token table against its own parts."""


class Designs(
    Ref,
    kind="designs",
    schema=nullable(
        "run str, role str, family str, arm str, model str, policy str, problems str, num_problems big",
        "group_size big, temperature real, top_p real, learned_at real, max_tokens big, steps big",
        "last_evaluated big, seeds big, grader str, truncated real, truncated_bound bool",
        "planned_problems big, place str",
    ),
):
    """How each published run was made."""
