"""What is held at once does not grow with the ledger: four times the rollouts, the same memory but for their keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scale import alone
from benchmarks.scale_data import GROUP, fill_ledger
from storage.ledger import Ledger

#: Held all at once, a rollout of 500 tokens took 29 kB or more; what allocators keep is among these.
ROLLOUTS, TOKENS, KB_EACH = 3_072, 500, 8.0


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """By problems."""
    made = {times * ROLLOUTS // GROUP: tmp_path_factory.mktemp("few") for times in (1, 4)}
    for problems, root in made.items():
        fill_ledger(Ledger(root), problems, TOKENS)
    return made


@pytest.mark.parametrize(
    "name", ["rollouts, all of them in the ledger", "regraded under overrides", "embeddings", "classes of answers"]
)
def test_memory_does_not_grow_with_the_ledger(roots: dict[int, Path], name: str) -> None:
    few, many = (alone(root, problems, name)["mb"] for problems, root in roots.items())
    assert (many - few) * 1000 / (3 * ROLLOUTS) < KB_EACH
