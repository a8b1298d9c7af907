"""A sample of the faults, one of each; `python -m tests.chaos.table` tries them by the hundred for docs/reliability.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import Parked
from tests.chaos import distant, faults
from tests.chaos import study as small
from tests.chaos.results import RECOVERED
from tests.chaos.table import SmallStudy
from tests.chaos.trial import CannotTry
from tests.servers import free_port

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> SmallStudy:
    folder = tmp_path_factory.mktemp("chaos")
    return SmallStudy(folder, folder / "results.jsonl", None)


@pytest.mark.parametrize("kind", [*faults.FAULTS, *distant.ENGINE_FAULTS])
def test_the_same_command_finishes_as_if_nothing_had_happened(kind: str, study: SmallStudy) -> None:
    try:
        one = study.attempt(kind, seed=-1)
    except CannotTry as reason:
        pytest.skip(str(reason))
    assert one.outcome == RECOVERED


def test_a_run_parks_by_the_plan_that_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARBAND_OPENAI_PATIENCE", "0.2")
    with pytest.raises(Parked, match="0 of 7 stages are done, 'screen' is under way"):
        small.run(tmp_path, f"http://127.0.0.1:{free_port()}/v1")
