"""A value does not depend on the order in which a set gives its words, nor a rank on its last bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from tasks.domain.statistics.regression import rank_correlation

REPO = Path(__file__).resolve().parents[2]
PROGRAM = """
import numpy as np
from tasks.measures.width import expectation_adjusted_distinct
from tasks.measures.width import Group
from tasks.measures.width import windows_of
draw = np.random.default_rng(0)
words = [[f"w{x}" for x in draw.geometric(0.05, 64)] for _ in range(8)]
nothing = np.zeros(8)
group = Group(nothing.astype(int), nothing.astype(bool), nothing, nothing, nothing[:, None], windows_of(words, [64])[64], 90)
print([expectation_adjusted_distinct(group, k).hex() for k in (2, 3, 5)])
"""


def printed(hash_seed: int) -> str:
    env = os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(REPO)}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True).stdout


def test_words_in_any_order_give_one_value() -> None:
    assert len({printed(seed) for seed in range(1, 6)}) == 1


def test_values_that_differ_by_their_summing_are_tied() -> None:
    x = np.array([0.1 + 0.2, 0.3, 0.7, 0.1, 0.9, 0.8])
    tied = np.array([0.3, 0.3, 0.7, 0.1, 0.9, 0.8])
    y, each = np.array([3.0, 1, 2, 0, 5, 4]), np.arange(6)
    assert rank_correlation(x, y, each) == rank_correlation(tied, y, each)
