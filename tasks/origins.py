"""What stored rollouts were sampled with, through every regrading of them."""

from __future__ import annotations

from collections.abc import Mapping

from storage.artifacts.ref import Ref
from tasks.stage import store


def sampled_with(rollouts: Ref) -> Mapping[str, object] | None:
    """Arguments of the stage that sampled them, as its recipe keeps them; null for imported ones."""
    recipe = store().manifest(rollouts).recipe
    while "policy" not in recipe.arguments:
        if "rollouts" not in recipe.inputs:
            return None
        recipe = store().manifest(Ref.parse(recipe.inputs["rollouts"][0])).recipe
    return recipe.arguments
