"""What the page of the 30B mixture says of a step's longest rollouts, and of what would shorten them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.thirty_b_lengths import alone, by_rollouts, longest_first, shared_out


def tail(
    lengths: Sequence[np.ndarray], steps: Sequence[Mapping[str, Any]], ms: dict[int, float], shared: Mapping[str, Any]
) -> str:
    """lengths, steps: of steps 2 to 5. shared: ms a position of one engine on one GPU and on two, by rollouts."""

    def takes(how: Any, *args: Any) -> float:
        return float(np.mean([how(own, *args, ms) for own in lengths]))

    one, two = by_rollouts(shared["1"]), by_rollouts(shared["2"])
    faster = {n: ms[n] * two[n] / one[n] for n in ms if n in one and n in two}
    by_two = float(np.mean([alone(own, faster) for own in lengths]))
    stale = float(np.mean([max(step["generate"], step["train"]) + step["sync"] for step in steps]))
    return (
        f"- **The long tail**: of {takes(alone):.1f} s that sampling takes by these lengths (as *computed*), two engines would save {takes(alone) - takes(shared_out, 2):.1f} with rollouts shared out as they come, and {takes(alone) - takes(longest_first, 2):.1f} if their lengths were known"
        f" before, which is the most that predicting them can give: it is not done. One engine on two GPUs would take {by_two:.1f} s, by its gain as measured on H100s. `training.staleness=1`, which samples the next step's rollouts while this one trains, would make the steps of {np.mean([step['wall'] for step in steps]):.1f} s take {stale:.1f}: computed"
        " by their phases, not run at this size."
    )
