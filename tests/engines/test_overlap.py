"""What training on finished groups could save: benchmarks/overlap.py."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.overlap import saving


@pytest.mark.parametrize(
    ("ready", "share", "saved"),
    [
        ([1.0, 2.0], 0.5, 0.25),  # half of training hides in the last half of decoding
        ([2.0, 2.0], 0.5, 0.0),  # nothing is ready before everything is
        ([1.0, 2.0], 0.0, 0.0),  # there is nothing to hide
    ],
)
def test_what_is_ready_early_is_trained_on_early(ready: list[float], share: float, saved: float) -> None:
    assert saving(np.array(ready), np.array([1.0, 1.0]), share) == pytest.approx(saved)
