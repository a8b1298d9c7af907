"""Flows that need no worker, in this process on a test server: what their pages and states say, and what nothing costs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.testing.utilities import prefect_test_harness

from flows.server import deployed
from flows.study.forms import BudgetForm, StudyForm
from storage.artifacts.store import Store
from tests.storage.records.test_nights import a_night

pytestmark = pytest.mark.slow

MINE = 'base = "demo"\nname = "mine"\narms = ["panel"]\nmodel = "nowhere/weights@' + "0" * 40 + '"\n'
Pages = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    """The pages under a key, newest first."""
    with prefect_test_harness(server_startup_timeout=180), get_client(sync_client=True) as client:
        client: Any
        asked = lambda key: {"artifacts": {"key": {"any_": [key]}}, "sort": "CREATED_DESC"}  # noqa: E731
        yield lambda key: client.request("POST", "/artifacts/filter", json=asked(key)).json()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VARBAND_ROOT", str(tmp_path))
    return tmp_path


def test_the_text_of_a_study_is_planned_as_an_artifact_and_nothing_is_made(root: Path, pages: Pages) -> None:
    said = deployed.plan(StudyForm(file=MINE), BudgetForm(tokens=1000))
    (page,) = pages("plan")
    assert "mine: " in said and page["description"] == "mine"
    for words in ("stages would be made", "not on this machine: nowhere/weights", "budget tokens=1000 does not hold"):
        assert words in page["data"]
    assert "a nightly re-evaluation of one adapter samples at most 200 k tokens (US$ 0.00)" in page["data"]
    assert re.search(r"\| make \| train panel seed 0 \| [\d,]+ \|", page["data"])
    assert not Store(root).refs()


def test_a_collection_lists_what_it_would_take(root: Path, pages: Pages) -> None:
    """Not how much alone: who ticks `remove` after it wants to know what."""
    left = root / ".scratch" / "left"
    left.mkdir(parents=True)
    (left / "rows").write_bytes(b"12345")
    for path in (left / "rows", left):
        os.utime(path, (0, 0))
    assert deployed.gc() == 1
    (page,) = pages("gc")
    assert page["description"] == "1 folders, 0.0 MB: would go"
    row = {"path": ".scratch/left", "bytes": 5, "why": "scratch of a writer that is gone"}
    assert json.loads(page["data"]) == [row] and left.exists()


def test_a_night_is_green_only_if_all_was_compared_and_held(
    root: Path, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    band = {"expected": 0.6, "low": 0.5, "high": 0.7, "drawn": "whole"}
    held = a_night("panel", 1, tonight=0.6, **band).keep(root)
    drifted = a_night("panel", 2, tonight=0.2, state="drifted", found="accuracy 0.200", **band).keep(root)
    for found, name in (([], "Unchecked"), ([held], "Completed"), ([held, drifted], "Drifted")):
        monkeypatch.setattr(deployed, "reevaluate", lambda *_, found=found: iter(found))
        state = deployed.reeval(canary_tokens=5, sample_anyway=True, return_state=True)
        (page, *_) = pages("nightly")
        assert state.name == name and page["description"] in state.message
        assert ("data:image/svg+xml" in page["data"]) == bool(found)
