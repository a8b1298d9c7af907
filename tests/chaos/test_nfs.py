"""Locks and leases on NFS 4: two hosts lose no change, and one takes over the lease of the other after kill -9.

A host is a network namespace with a name and a mount of its own: for the server it is another client. Two mounts of one
client would not do. The server does not recall a client's delegation because of its own changes, so each mount would
read old content.
"""

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
MOUNT = 'mount -t nfs4 "$0" "$1"; shift; exec "$@"'
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


def in_host(number: int, *words: str) -> list[str]:
    """Return the command that runs these words in a host: a network, a name and process numbers of its own."""
    apart = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return [
        "ip",
        "netns",
        "exec",
        f"varband-{number}",
        *apart,
        "sh",
        "-ec",
        f"hostname varband-{number}; {MOUNT}",
        *words,
    ]


def host(number: int, export: Path, program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a program on a host, which mounts the export first."""
    server, folder = f"10.117.{number}.1:{export}", export.parent / f"host-{number}"
    folder.mkdir(exist_ok=True)
    words = [server, str(folder), sys.executable, "-c", program, str(folder), *map(str, arguments)]
    return subprocess.Popen(in_host(number, *words), cwd=REPO, stdout=subprocess.PIPE, text=True)


def network(number: int) -> Iterator[list[str]]:
    """Yield the commands that connect a host with this machine, as another client of its NFS server."""
    name, wire = f"varband-{number}", f"varband{number}"
    yield ["ip", "netns", "add", name]
    yield ["ip", "link", "add", wire, "type", "veth", "peer", "name", "wire", "netns", name]
    yield ["ip", "address", "add", f"10.117.{number}.1/24", "dev", wire]
    yield ["ip", "link", "set", wire, "up"]
    yield ["ip", "-n", name, "address", "add", f"10.117.{number}.2/24", "dev", "wire"]
    yield ["ip", "-n", name, "link", "set", "wire", "up"]


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that this machine exports. The server's grace period ends after 10 s."""
    folder = tmp_path_factory.mktemp("nfs") / "export"
    folder.mkdir()
    commands = [
        ["mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd"],
        ["exportfs", "-o", "rw,no_root_squash,insecure,fsid=17", f"10.117.0.0/16:{folder}"],
        ["rpc.mountd"],
        ["rpc.nfsd", "--grace-time", "10", "--lease-time", "10", "4"],
        *network(1),
        *network(2),
    ]
    try:
        for command in commands:
            if not (command[-1] == "/proc/fs/nfsd" and os.path.ismount("/proc/fs/nfsd")):
                subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        lacks("nfs", "no NFS server: apt-get install nfs-kernel-server iproute2")
    except subprocess.CalledProcessError as error:
        lacks("nfs", f"NFS needs root and a kernel with nfs and nfsd: {error.stderr.strip()}")
    yield folder
    for number in (1, 2):
        subprocess.run(["ip", "netns", "delete", f"varband-{number}"], check=False)
    subprocess.run(["exportfs", "-u", f"10.117.0.0/16:{folder}"], check=False)


def test_no_change_of_two_hosts_is_lost(export: Path) -> None:
    Folder(export).put("count", b"0")
    hosts = [host(number, export, COUNT) for number in (1, 2)]
    assert [process.wait(300) for process in hosts] == [0, 0]
    found = Folder(export).get("count")
    assert found and int(found[0]) == 2 * CHANGES


def test_the_lease_of_a_killed_host_is_taken_over(export: Path) -> None:
    holder = host(1, export, HOLD, 600)
    assert holder.stdout and holder.stdout.readline() == "held\n"
    waiting = host(2, export, HOLD, 0)
    time.sleep(5)
    assert waiting.poll() is None, "a living host keeps its lease"
    began = time.monotonic()
    holder.send_signal(signal.SIGKILL)
    assert waiting.wait(300) == 0
    took = time.monotonic() - began
    print(f"another host took over the lease after {took:.0f} s")
    assert SILENCE_SECONDS - 15 < took < SILENCE_SECONDS + 30
