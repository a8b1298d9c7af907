"""A server that answers late: a request is sent again, and the second answer is of a state that is there already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flows.running.on_prefect import _as_flow

pytestmark = pytest.mark.slow


@pytest.fixture
def sent_twice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from prefect.client.base import PrefectHttpxSyncClient
    from prefect.testing.utilities import prefect_test_harness

    once = PrefectHttpxSyncClient.send

    def twice(client: Any, request: Any, *rest: Any, **how: Any) -> Any:
        if request.url.path.endswith("/set_state"):
            once(client, request, *rest, **how)
        return once(client, request, *rest, **how)

    with prefect_test_harness(server_startup_timeout=300):
        monkeypatch.setattr(PrefectHttpxSyncClient, "send", twice)
        yield


def test_what_an_arm_made_is_had_whatever_the_server_says(sent_twice: None) -> None:
    """SQLite was locked for a minute: the run failed, though the arm was screened."""
    assert _as_flow("screen panel", lambda: 7, "demo") == 7
