"""What a server offers, without one: its deployments as the documentation lists them, and what their forms refuse."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from flows.server.deployments import DEPLOYMENTS
from flows.upkeep.doctor import DEPLOYED

pytestmark = pytest.mark.slow

FORMS = {one.name: one.of_code()["parameter_openapi_schema"] for one in DEPLOYMENTS}


def test_doctor_misses_every_deployment_that_is_not_there() -> None:
    assert FORMS.keys() == DEPLOYED


@pytest.mark.parametrize(
    ("deployment", "parameters", "fits"),
    [
        ("gc", {"older_than_days": 0, "remove": True}, True),
        ("gc", {"older_than_days": -1}, False),  # would collect what a run makes at this moment
        ("gc", {"older_than_days": 1e9}, False),
        ("experiment", {"study": {"profile": "demo"}, "budget": {"usd": 20}, "gpu_pool": True}, True),
        ("experiment", {"study": {"profil": "demo"}}, False),
        ("experiment", {"study": {"name": "my-study_2"}}, True),
        ("experiment", {"study": {"name": "my study"}}, False),
        ("experiment", {"budget": {"usd": -1}}, False),
        ("experiment", {"gpu_pool": "perhaps"}, False),
        ("plan", {"study": {"settings": [{"field": "training.stps", "value": "3"}]}}, False),
        ("plan", {"study": {"arms": ["panel", "panel"]}}, False),
        ("search", {"search": {"methods": ["majority"]}}, True),
        ("search", {"search": {"methods": ["majorty"]}}, False),
        ("search", {"search": {"methods": ["majority"], "tokens": 0}}, False),
    ],
)
def test_a_form_refuses_what_cannot_be(deployment: str, parameters: dict[str, Any], fits: bool) -> None:
    from prefect.utilities.schema_tools.validation import is_valid

    assert is_valid(parameters, FORMS[deployment]) == fits


@pytest.mark.slow
def test_a_collection_lists_what_it_would_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not how much alone: who ticks `remove` after it wants to know what."""
    from prefect.client.orchestration import get_client
    from prefect.testing.utilities import prefect_test_harness

    from flows.server.deployed import gc

    left = tmp_path / ".scratch" / "left"
    left.mkdir(parents=True)
    (left / "rows").write_bytes(b"12345")
    for path in (left / "rows", left):
        os.utime(path, (0, 0))
    monkeypatch.setenv("VARBAND_ROOT", str(tmp_path))
    with prefect_test_harness(server_startup_timeout=180):
        assert gc() == 1
        with get_client(sync_client=True) as client:
            (page,) = client.request("POST", "/artifacts/filter", json={}).json()  # type: ignore[arg-type]
    assert page["description"] == "1 folders, 0.0 MB: would go"
    assert json.loads(page["data"]) == [
        {"path": ".scratch/left", "bytes": 5, "why": "scratch of a writer that is gone"}
    ]
    assert left.exists()
