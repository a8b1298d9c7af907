"""Locks and leases on NFS 4: two hosts lose no change, and one takes over the lease of the other after kill -9.

A host is a process with process numbers and a mount of its own. `nosharecache` gives each mount its own cache and lock
owners, so that the server decides about every lock, as it does for two machines.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.leases import SILENCE_SECONDS, Folder
from tests.needs import lacks

pytestmark = pytest.mark.slow
REPO = Path(__file__).resolve().parents[2]
CHANGES = 100
COUNT = f"""
import sys
from pathlib import Path
from storage.leases import Folder
folder, left = Folder(Path(sys.argv[1])), {CHANGES}
while left:
    content, etag = folder.get("count")
    left -= folder.put("count", b"%d" % (int(content) + 1), IfMatch=etag) is not None
"""
HOLD = """
import sys, time
from pathlib import Path
from storage.leases import leases_of
with leases_of(Path(sys.argv[1])).claimed({"work": ["problem"]}):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def host(program: str, *arguments: object) -> subprocess.Popen[str]:
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", program]
    return subprocess.Popen([*words, *map(str, arguments)], cwd=REPO, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Two mounts of one folder that this machine exports. The server's grace period ends after 10 s."""
    export, one, two = (tmp_path_factory.mktemp(name) for name in ("export", "one", "two"))
    mount = ["mount", "-t", "nfs4", "-o", "nosharecache", f"127.0.0.1:{export}"]
    commands = (
        ["mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd"],
        ["exportfs", "-o", "rw,no_root_squash,insecure,fsid=17", f"127.0.0.1:{export}"],
        ["rpc.mountd"],
        ["rpc.nfsd", "--grace-time", "10", "--lease-time", "10", "2"],
        [*mount, str(one)],
        [*mount, str(two)],
    )
    try:
        for command in commands:
            if not (command[-1] == "/proc/fs/nfsd" and os.path.ismount("/proc/fs/nfsd")):
                subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        lacks("nfs", "no NFS server: apt-get install nfs-kernel-server")
    except subprocess.CalledProcessError as error:
        lacks("nfs", f"NFS needs root and a kernel with nfs and nfsd: {error.stderr.strip()}")
    yield one, two
    for folder in (one, two):
        subprocess.run(["umount", "--force", "--lazy", str(folder)], check=False)
    subprocess.run(["exportfs", "-u", f"127.0.0.1:{export}"], check=False)


def test_no_change_of_two_hosts_is_lost(mounts: tuple[Path, Path]) -> None:
    Folder(mounts[0]).put("count", b"0")
    hosts = [host(COUNT, folder) for folder in mounts]
    assert [process.wait(300) for process in hosts] == [0, 0]
    found = Folder(mounts[1]).get("count")
    assert found and int(found[0]) == 2 * CHANGES


def test_the_lease_of_a_killed_host_is_taken_over(mounts: tuple[Path, Path]) -> None:
    holder = host(HOLD, mounts[0], 600)
    assert holder.stdout and holder.stdout.readline() == "held\n"
    waiting = host(HOLD, mounts[1], 0)
    time.sleep(5)
    assert waiting.poll() is None, "a living host keeps its lease"
    began = time.monotonic()
    holder.send_signal(signal.SIGKILL)
    assert waiting.wait(300) == 0
    took = time.monotonic() - began
    print(f"another host took over the lease after {took:.0f} s")
    assert SILENCE_SECONDS - 15 < took < SILENCE_SECONDS + 30
