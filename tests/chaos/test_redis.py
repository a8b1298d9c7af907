"""A server that keeps events in Redis: after a power cut it finds what was lost."""

from __future__ import annotations

import importlib.util
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.server_faults import power_cut, register_toys, tried
from tests.needs import lacks
from tests.servers import REPO, end, free_port, postgres, prefect_server

pytestmark = [pytest.mark.slow, pytest.mark.chaos]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    if shutil.which("redis-server") is None:
        lacks("redis", "no Redis: apt-get install redis-server")
    port = free_port()
    words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
    yield f"redis://127.0.0.1:{port}/0"
    end(process)


def test_lost_runs_start_again_after_a_power_cut(tmp_path: Path, redis: str) -> None:
    if (found := importlib.util.find_spec("prefect_redis")) is None or found.origin is None:
        lacks("redis", "no prefect-redis: pip install varband[redis]")
    path = f"{REPO}:{Path(found.origin).parents[1]}"
    settings = {"PREFECT_REDIS_MESSAGING_URL": redis, "PYTHONPATH": path}
    with postgres() as database, prefect_server(tmp_path / "server", database, **settings) as server:
        server.varband("server", "deploy")
        register_toys(server)
        server.worker("cpu", "cpu-1", limit=2)
        server.worker("gpu", "gpu-1")
        assert tried(power_cut, server, "redis", random.Random(0)) < 300
    client = ["redis-cli", "-u", redis, "--raw", "--scan"]
    kept = subprocess.run(client, capture_output=True, text=True, check=True).stdout
    assert "seen:" in kept, "events go through Redis"
