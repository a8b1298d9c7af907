"""What is held at once does not grow with the ledger: four times the rollouts, the same memory but for their keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scale_data import GROUP, fill_ledger
from benchmarks.scale_stages import alone
from storage.ledger import Ledger

#: Stage → kB that a rollout of 500 tokens may add, in this order: each finds what those before it made. Held all at once
#: one took 29 kB or more, of vectors 13 in diversity and 8 in its ceilings; what allocators keep is among these, and of
#: vectors the reader's group of rows.
ROLLOUTS, TOKENS = 3_072, 500
KB_EACH = {
    "rollouts, all of them in the ledger": 8.0,
    "regraded under overrides": 8.0,
    "embeddings": 8.0,
    "classes of answers": 8.0,
    "diversity": 11.5,
    "ceilings of diversity": 4.0,
}


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """By problems."""
    made = {times * ROLLOUTS // GROUP: tmp_path_factory.mktemp("few") for times in (1, 4)}
    for problems, root in made.items():
        fill_ledger(Ledger(root), problems, TOKENS)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", KB_EACH)
def test_memory_does_not_grow_with_the_ledger(roots: dict[int, Path], name: str) -> None:
    few, many = (alone(root, problems, name)["mb"] for problems, root in roots.items())
    assert (many - few) * 1000 / (3 * ROLLOUTS) < KB_EACH[name]
