"""A machine that will be taken away: the cloud's notice becomes SIGTERM, and the run ends within that notice."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import mini
from tests.servers import REPO, Quiet, serving

#: What each cloud's metadata service answers before and after its notice: None is 404. And the header that it needs.
CLOUDS = {
    "aws": (
        "/latest/meta-data/spot/instance-action",
        None,
        '{"action": "terminate"}',
        ("X-aws-ec2-metadata-token", "t"),
    ),
    "gcp": ("/computeMetadata/v1/instance/preempted", "FALSE", "TRUE", ("Metadata-Flavor", "Google")),
    "azure": (
        "/metadata/scheduledevents?api-version=2020-07-01",
        '{"Events": []}',
        '{"Events": [{"EventType": "Preempt"}]}',
        ("Metadata", "true"),
    ),
}
WORK = "trap 'echo ending; exit 75' TERM; while :; do sleep 0.05; done"


@contextmanager
def metadata_service(cloud: str, notice_after: int) -> Iterator[str]:
    """Its address; the notice is given from the question of this number on."""
    path, before, after, (header, value) = CLOUDS[cloud]
    asked = 0

    class Handler(Quiet):
        def do_PUT(self) -> None:
            self._say("t" if self.path == "/latest/api/token" else None)

        def do_GET(self) -> None:
            nonlocal asked
            asked += 1
            known = self.path == path and self.headers[header] == value
            self._say((before if asked < notice_after else after) if known else None)

        def _say(self, text: str | None) -> None:
            self.answer(404 if text is None else 200, (text or "").encode())

    with serving(Handler) as address:
        yield address


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_notice_ends_the_command_with_its_own_code(cloud: str) -> None:
    with metadata_service(cloud, notice_after=3) as address:
        done = subprocess.run(
            [str(REPO / "deploy" / "spot-notice.sh"), cloud, "bash", "-c", WORK],
            env={"METADATA": address, "EVERY": "0.1", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout) == (75, "ending\n"), done.stderr


def record_of(root: Path) -> dict[str, Any]:
    """The record of the only run; empty if there is none yet."""
    return next((json.loads(path.read_text()) for path in (root / "runs").glob("*.json")), {})


@pytest.mark.slow
def test_a_run_ends_within_the_shortest_notice(tmp_path: Path) -> None:
    """SIGTERM at ten moments of the demo, each after the attempt has made something that the one before had not.
    `pytest -s` prints them."""
    ended, root = list[tuple[float, str]](), tmp_path / "store"
    for attempt in range(40):
        before, process = record_of(root).get("stages_done", 0), mini.start(root)
        while process.poll() is None and record_of(root).get("stages_done", 0) <= before:
            time.sleep(0.1)
        time.sleep(0.5 * (attempt % 5))
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        printed = process.communicate(timeout=120)
        if record_of(root)["state"] == "finished":
            break
        assert process.returncode == 75, printed
        ended.append((time.monotonic() - began, record_of(root)["at"]))
    print(*(f"{seconds:5.1f} s {at}" for seconds, at in ended), sep="\n")
    assert len(ended) >= 10 and max(ended)[0] < 30
