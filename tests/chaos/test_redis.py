"""A server that keeps events in Redis: their order outlives a restart, and a power cut loses no run."""

import asyncio
import random
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.chaos.server_faults import api, power_cut, register_toys, tried
from tests.needs import lacks
from tests.servers import end, free_port, postgres, prefect_server

pytestmark = [pytest.mark.slow, pytest.mark.chaos]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("prefect_redis")
    if shutil.which("redis-server") is None:
        lacks("redis", "no Redis: apt-get install redis-server")
    port = free_port()
    words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
    yield f"redis://127.0.0.1:{port}/0"
    end(process)


def test_an_early_event_waits_and_a_restarted_server_knows_what_was_seen(
    redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second object of the class stands for the restarted server: it has no memory of its own."""
    monkeypatch.setenv("PREFECT_REDIS_MESSAGING_URL", redis)
    from prefect.server.events.ordering import EventArrivedEarly
    from prefect.server.events.schemas.events import ReceivedEvent

    ordering, handled = pytest.importorskip("prefect_redis.ordering"), []

    async def handle(event: ReceivedEvent, depth: int = 0) -> None:
        async with ordering.CausalOrdering("test").preceding_event_confirmed(handle, event, depth):
            handled.append(event.event)

    async def arrive() -> None:
        def event(name: str, follows: UUID | None) -> ReceivedEvent:
            now, about = datetime.now(UTC), {"prefect.resource.id": "run"}
            return ReceivedEvent.model_validate(
                {"id": uuid4(), "event": name, "follows": follows, "occurred": now, "received": now, "resource": about}
            )

        running = event("Running", (pending := event("Pending", None)).id)
        with pytest.raises(EventArrivedEarly):
            await handle(running)
        await handle(pending)
        await handle(event("Completed", running.id))

    asyncio.run(arrive())
    assert handled == ["Pending", "Running", "Completed"]


def test_lost_runs_start_again_after_a_power_cut(tmp_path: Path, redis: str) -> None:
    settings = {"PREFECT_REDIS_MESSAGING_URL": redis}
    with postgres() as database, prefect_server(tmp_path / "server", database, **settings) as server:
        ordering = api(server, "GET", "/admin/settings").json()["server"]["events"]["causal_ordering"]
        assert ordering == "prefect_redis.ordering", "no private name of Prefect is replaced"
        server.varband("server", "deploy")
        register_toys(server)
        server.worker("cpu", "cpu-1", limit=2)
        server.worker("gpu", "gpu-1")
        assert tried(power_cut, server, "redis", random.Random(0)) < 300
    client = ["redis-cli", "-u", redis, "--raw", "--scan"]
    kept = subprocess.run(client, capture_output=True, text=True, check=True).stdout
    assert "seen:" in kept, "events go through Redis"
