"""Every fault once; `python -m tests.chaos.table N` tries each N times and prints the table of docs/reliability.md."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from tests.chaos.driver import run
from tests.chaos.faults import FAULTS, CannotTry, results

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    root = tmp_path_factory.mktemp("undisturbed")
    run(root)
    return results(root)


@pytest.mark.parametrize("name", FAULTS)
def test_the_same_command_finishes_as_if_nothing_had_happened(
    name: str, undisturbed: dict[str, pa.Table], tmp_path: Path
) -> None:
    try:
        FAULTS[name](tmp_path / "root", undisturbed, random.Random(name))
    except CannotTry as reason:
        pytest.skip(str(reason))
