"""KL to the start: which groups it holds, and what it is measured from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.engines.learning.test_learner import CONFIG as LOOP
from tests.engines.learning.test_learner import run


def test_kl_is_to_where_training_started(tiny_base: Path, tmp_path: Path) -> None:
    """Zero at the first update, whether the start is the base model or an adapter; then it grows, and weight holds it
    down. Null where the loss has none."""
    config = replace(LOOP, steps=6)
    first = run(tiny_base, tmp_path / "first", config)
    assert {row["kl_start"] for row in first.steps} == {None}
    for init in (None, first.kept_adapters[-1]):
        ends = []
        for weight in (1e-6, 10.0):
            folder = tmp_path / f"{init is None}-{weight}"
            rows = run(tiny_base, folder, replace(config, kl_weight=weight), init=init).steps
            assert rows[0]["kl_start"] == 0.0 and all(row["kl_start"] > 0 for row in rows[1:])
            ends.append(rows[-1]["kl_start"])
        assert ends[1] < 0.8 * ends[0]
