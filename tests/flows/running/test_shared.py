"""A study that two processes share without a server: each piece is made by one of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import mini


@pytest.mark.slow
def test_two_processes_share_the_pieces_of_a_study(tmp_path: Path) -> None:
    both = [mini.start(tmp_path / "store", "--engine", "transformers", "--shared") for _ in range(2)]
    made = []
    for process in both:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
        made.append({*re.findall(r"^ *((?:screen|train|embed) .*?) +made ", said, re.MULTILINE)})
    assert all(made) and not made[0] & made[1]
    assert {"screen panel", "screen thinking", "train panel seed 0", "train thinking seed 0"} <= made[0] | made[1]
