"""A disk that takes no more and a machine that is taken away, met by commands: one sentence and an exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import mini, warm

pytestmark = pytest.mark.slow

#: Longer than any test.
STATEMENT = "select count(band(range % 9, 8)) from range(300000000000)"


def one_sentence(said: str) -> str:
    """The last line of standard error."""
    assert "Traceback" not in said, said
    lines = [line for line in said.splitlines() if line.startswith("varband: ")]
    assert len(lines) == 1, said
    return lines[0]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, to be made as small as somebody wants."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as handle:
        try:
            while True:
                handle.write(b"\0" * 4096)
        except OSError:
            return


def varband(disk: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return warm.run([warm.VARBAND, *words, "--root", str(disk / "store")], cwd=disk, env=mini.environment())


def test_a_full_disk_is_a_sentence_whatever_the_command(small_disk: Path) -> None:
    (small_disk / "pool.jsonl").write_text(json.dumps({"id": "a", "problem": "1 + 1?", "gold": "2"}))
    assert varband(small_disk, "pool", "build", "pool.jsonl").returncode == 0
    fill(small_disk)
    exported = ("export", "study", str(small_disk / "copy"))
    for words in (("run", "demo", "--plain"), exported, ("pool", "build", "pool.jsonl", "--also-exclude", "markup")):
        done = varband(small_disk, *words)
        assert done.returncode == 2, (words, done.stderr)
        assert "No space left on device" in one_sentence(done.stderr)
    for words in (("store", "ls"), ("runs",), ("store", "verify"), ("store", "sql", "select count(*) from artifacts")):
        done = varband(small_disk, *words)
        assert done.returncode == 0, (words, done.stderr)
    (small_disk / "filler").unlink()
    assert varband(small_disk, *exported).returncode == 0


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_is_a_sentence_whatever_the_command(tmp_path: Path, how: signal.Signals, code: int) -> None:
    command = subprocess.Popen(
        [warm.VARBAND, "store", "sql", STATEMENT, "--root", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=mini.environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell ignores it
    )
    try:
        while psutil.Process(command.pid).cpu_times().user < 3:  # more than it takes to import and to open the root
            time.sleep(0.05)
        command.send_signal(how)
        _, said = command.communicate(timeout=300)
    finally:
        command.kill()
    assert command.returncode == code, said
    one_sentence(said)
