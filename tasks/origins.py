"""Where stored things come from: what rollouts were sampled with, and which model an adapter belongs to."""

from __future__ import annotations

from collections.abc import Mapping

from storage.artifacts.fingerprint import restored
from storage.artifacts.ref import Ref
from tasks.domain.arms import ARMS
from tasks.domain.policies import BaseModel, Policy
from tasks.domain.scaffolds import MATH, Scaffold
from tasks.stage import store


def sampled_with(rollouts: Ref) -> Mapping[str, object] | None:
    """Arguments of the stage that sampled them, as its recipe keeps them, through every regrading, and through what was
    embedded or measured of them; null for imported ones."""
    recipe = store().manifest(rollouts).recipe
    while "policy" not in recipe.arguments:
        onward = recipe.inputs.get("rollouts") or recipe.inputs.get("embeddings")
        if not onward:
            return None
        recipe = store().manifest(Ref.parse(onward[0])).recipe
    return recipe.arguments


def scaffold_of(rollouts: Ref) -> Scaffold | None:
    """The scaffold that sampled rollouts were read by, whatever its arm has become; null for imported ones."""
    arguments = sampled_with(rollouts)
    return restored(Policy, arguments["policy"]).scaffold if arguments else None


def answer_kind_of(rollouts: Ref) -> str:
    scaffold = scaffold_of(rollouts)
    return MATH if scaffold is None else scaffold.answer_kind


def base_of(training: Ref) -> BaseModel:
    """The base model of a training, or of an adapter that was made elsewhere."""
    given = store().manifest(training).recipe.arguments
    return restored(Policy, given["start"]).model if "start" in given else restored(BaseModel, given["base"])


def known_scaffolds() -> dict[str, Scaffold]:
    """Every scaffold that the store's manifests spell, and those that code knows, by digest."""
    found = {arm.scaffold.digest: arm.scaffold for arm in ARMS.values()}
    for ref in store().refs():
        given = store().manifest(ref).recipe.arguments
        for policy in (given.get(name) for name in ("policy", "start", "second")):
            if isinstance(policy, dict) and "scaffold" in policy:
                scaffold = restored(Policy, policy).scaffold
                found.setdefault(scaffold.digest, scaffold)
    return found
