"""What a form shows before anything is paid: the plan of a study's text, with its price, on a server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.testing.utilities import prefect_test_harness

from flows.server.deployed import plan
from flows.study.forms import BudgetForm, StudyForm
from storage.artifacts.store import Store

pytestmark = pytest.mark.slow

MINE = 'base = "demo"\nname = "mine"\narms = ["panel"]\nmodel = "nowhere/weights@' + "0" * 40 + '"\n'


def test_the_text_of_a_study_is_planned_as_an_artifact_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARBAND_ROOT", str(tmp_path / "root"))
    with prefect_test_harness(server_startup_timeout=180):
        said = plan(StudyForm(file=MINE), BudgetForm(tokens=1000))
        with get_client(sync_client=True) as client:
            (page,) = client.request("POST", "/artifacts/filter", json={}).json()  # type: ignore[arg-type]
    assert "mine: " in said and page["key"] == "plan" and page["description"] == "mine"
    for words in ("stages would be made", "not on this machine: nowhere/weights", "budget tokens=1000 does not hold"):
        assert words in page["data"]
    assert re.search(r"\| make \| train panel seed 0 \| [\d,]+ \|", page["data"])
    assert not Store(tmp_path / "root").refs()
