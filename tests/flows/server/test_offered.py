"""What a server offers, without one: its deployments as the documentation lists them, and what their forms refuse."""

from __future__ import annotations

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
        ("experiment", {"study": {"profile": "demo"}, "budget": {"usd": 20}, "gpu_pool": True}, True),
        ("experiment", {"study": {"profil": "demo"}}, False),
        ("experiment", {"study": {"name": "my study"}}, False),
        ("search", {"search": {"methods": ["majority"]}}, True),
    ],
)
def test_a_form_refuses_what_cannot_be(deployment: str, parameters: dict[str, Any], fits: bool) -> None:
    from prefect.utilities.schema_tools.validation import is_valid

    assert is_valid(parameters, FORMS[deployment]) == fits
