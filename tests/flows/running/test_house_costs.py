"""What `docs/operations.md` says that the house itself costs is measured by a benchmark that runs today."""

from __future__ import annotations

from pathlib import Path

from benchmarks.operations import paper_study, reused_dag
from flows.running.plan import plan
from storage.artifacts.store import Store


def test_the_papers_stages_are_found_reused_and_looked_up(tmp_path: Path) -> None:
    planning, carrying_out = reused_dag(tmp_path, server=False)
    store = Store(tmp_path)
    planned = plan(paper_study(store), store)
    assert f"all {len(planned)} stages" in planning.name and all(stage.reused for stage in planned)
    assert planning.value > 0 and carrying_out.value > 0
