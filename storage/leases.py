"""Leases: which process makes a piece of work, so that it is not paid twice.

A lease is a small document (a file, or an object of a bucket) with a list of [holder, keys]. A process replaces a lease
only if the document is still the version that it read (`If-Match`). Each holder has a document that its heartbeats
replace. A holder is dead if its process on this machine is gone, or after SILENCE_SECONDS without a heartbeat. The
clocks of two machines are never compared: a waiting process measures the time since the heartbeat last changed.
"""

import fcntl
import functools
import hashlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import current_process, parent_process
from pathlib import Path

import orjson
import psutil

from storage.errors import Parked, UserError
from storage.mirror import mirror_of
from storage.objects import Objects, impatient
from storage.roots import lock_file

BEAT_SECONDS, SILENCE_SECONDS = 10.0, 60.0
#: Seconds between two checks of a waiting process: on a disk (True), in a bucket (False).
POLL_SECONDS = {True: 0.1, False: 2.0}
FOLDER = ".leases/"
Claims = list[tuple[str, list[str]]]
#: Holders of this process that have ended. Leases that still name them are free.
_ended: set[str] = set()


@contextmanager
def heartbeats(beat: Callable[[], None], every: float = BEAT_SECONDS) -> Iterator[None]:
    """Call `beat` every few seconds from another thread while the block runs."""
    over = threading.Event()

    def loop() -> None:
        while not over.wait(every):
            with suppress(UserError, OSError), impatient():  # a fault that lasts makes the run's own writes fail
                beat()

    thread = threading.Thread(target=loop, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True, slots=True)
class Folder:
    """Documents in a folder, on a local disk or a network disk."""

    root: Path

    def _path(self, name: str) -> Path:
        return lock_file(self.root, name.removeprefix(FOLDER)).with_suffix(".json")

    def get(self, name: str) -> tuple[bytes, str] | None:
        try:
            content = self._path(name).read_bytes()
        except FileNotFoundError:
            return None
        return content, hashlib.sha256(content).hexdigest()

    def put(self, name: str, content: bytes, **condition: str) -> str | None:
        path = self._path(name)
        with lock_file(self.root, "documents").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            found = self.get(name)
            if condition and (found[1] if found else None) != condition.get("IfMatch"):
                return None
            aside = path.with_suffix(f".{uuid.uuid4().hex}")
            aside.write_bytes(content)
            os.replace(aside, path)
        return hashlib.sha256(content).hexdigest()

    def delete(self, *names: str) -> None:
        for name in names:
            self._path(name).unlink(missing_ok=True)


#: Documents with an ETag and conditional writes.
Documents = Folder | Objects


@functools.cache
def machine() -> str:
    """Return a name for this host, its present boot, and the namespace of its process ids."""
    spaces = [Path("/proc/self/ns/pid"), Path("/proc/sys/kernel/random/boot_id")]
    ids = [os.readlink(path) if path.is_symlink() else path.read_text().strip() for path in spaces if path.exists()]
    return " ".join([socket.gethostname(), *ids])


@functools.lru_cache(maxsize=64)
def _leases(root: Path, pid: int) -> "Leases":
    mirror = mirror_of(root)
    return Leases(mirror or Folder(root), POLL_SECONDS[mirror is None])


def leases_of(root: Path) -> "Leases":
    return _leases(root.resolve(), os.getpid())


@dataclass
class Leases:
    """The leases that this process holds in one root. Thread-safe. command: id of the command's main process."""

    documents: Documents
    poll: float
    holder: str = ""
    command: int = field(default_factory=lambda: (parent_process() or current_process()).pid or os.getpid())
    held: list[tuple[str, list[str]]] = field(default_factory=list)
    _tried: list[tuple[str, list[str]]] = field(default_factory=list)
    _inside: int = 0
    _renewed: float = 0.0
    _heart: ExitStack = field(default_factory=ExitStack)
    _heard: dict[str, tuple[str, float]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @contextmanager
    def claimed(
        self,
        wanted: Mapping[str, Sequence[str]],
        tell: Callable[[str], None] = lambda _: None,
        *,
        whole: bool = True,
        wait: bool = True,
    ) -> Iterator[dict[str, set[str]]]:
        """Hold leases on the wanted keys. Yield the keys that this process holds.

        whole: wait until all keys are free. If not `whole`, wait until one key is free, and hold the free keys. wait:
        if False, do not wait, even if no key is free. A waiting process holds no lease, so deadlocks cannot occur.
        tell: receives a description of who holds the lease.
        """
        with self.present():
            last, mine = "", self._claim(wanted, whole)
            while wait and not mine:
                if (who := self._others(wanted)) and who != last:
                    tell(last := who)
                time.sleep(self.poll)
                mine = self._claim(wanted, whole)
            try:
                yield {name: set(keys) for name, keys in mine.items()}
            except BaseException:
                with impatient():
                    self._release(mine)
                raise
            self._release(mine)

    def check(self) -> None:
        """Raise Parked if another process took over a lease because this process was silent for too long."""
        if not self.held or time.monotonic() - self._renewed < SILENCE_SECONDS / 2:
            return
        self._heartbeat()
        for name, keys in list(self.held):
            mine = (self.holder, keys)
            # write the lease again, so that a process that is taking it over must read it again
            if not self._change(name, lambda c, mine=mine: [*_without(c, mine), mine] if mine in c else None):
                raise Parked(
                    f"{name}: another machine took over this machine's work, because this machine was silent for"
                    f" {SILENCE_SECONDS:.0f} s; finished work is kept, and the same command resumes the run"
                )

    def _claim(self, wanted: Mapping[str, Sequence[str]], whole: bool) -> dict[str, list[str]]:
        mine: dict[str, list[str]] = {}
        for name, keys in wanted.items():
            if free := self._free(name, keys, whole):
                mine[name] = free
            elif whole:
                self._release(mine)
                return {}
        return mine

    def _free(self, name: str, keys: Sequence[str], whole: bool) -> list[str]:
        """Take the free keys. A claim that this process failed to release is free too."""
        free: list[str] = []
        self._tried.append((name, free))

        def is_held(holder: str, theirs: list[str]) -> bool:
            if holder == self.holder:
                return (name, theirs) in [*self.held, *self._tried]
            return self._lives(holder)

        def change(claims: Claims) -> Claims | None:
            free.clear()
            alive = [claim for claim in claims if is_held(*claim)]
            taken = {key for _, theirs in alive for key in theirs}
            free.extend(key for key in keys if key not in taken)
            return [*alive, (self.holder, free)] if free and not (whole and len(free) < len(keys)) else None

        try:
            if not self._change(name, change):
                return []
            self.held.append((name, free))
            return free
        finally:
            self._tried.remove((name, free))

    def _release(self, mine: Mapping[str, list[str]]) -> None:
        for name, keys in mine.items():
            self.held.remove((name, keys))
            with suppress(UserError):  # the lease expires by itself
                self._change(name, lambda claims, keys=keys: _without(claims, (self.holder, keys)))

    def _change(self, name: str, change: Callable[[Claims], Claims | None]) -> bool:
        """Replace the claims of a lease by the result of `change`. Return False if the result is None."""
        while True:
            found = self.documents.get(document := f"{FOLDER}{name}")
            after = change(_claims(found))
            if after is None:
                return False
            condition = {"IfMatch": found[1]} if found else {"IfNoneMatch": "*"}
            if self.documents.put(document, orjson.dumps([after, uuid.uuid4().hex]), **condition):
                return True

    def _others(self, wanted: Mapping[str, Sequence[str]]) -> str:
        """Describe who holds the first lease that is not free. Return an empty text for the same command's process."""
        for name in wanted:
            for holder, _ in _claims(self.documents.get(f"{FOLDER}{name}")):
                if holder != self.holder and self._lives(holder) and (found := self.documents.get(_of(holder))):
                    who = orjson.loads(found[0])
                    if (who["machine"], who.get("command")) != (machine(), self.command):
                        return "process {pid} on {host} is at work on it: waiting".format(**who)
        return ""

    def _lives(self, holder: str) -> bool:
        if holder in _ended or (found := self.documents.get(_of(holder))) is None:
            return False
        state = orjson.loads(found[0])
        if state["machine"] == machine() and not _runs(state["pid"], state["started"]):
            return False
        etag, since = self._heard.get(holder, ("", 0.0))
        if etag != found[1]:
            self._heard[holder] = found[1], time.monotonic()
            return True
        return time.monotonic() - since < SILENCE_SECONDS

    @contextmanager
    def present(self) -> Iterator[None]:
        """Send heartbeats while any thread is in a block of this kind."""
        with self._lock:
            if self._inside == 0:
                self.holder = uuid.uuid4().hex
                self._heartbeat()
                self._heart.enter_context(heartbeats(self._heartbeat, BEAT_SECONDS))
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._heart.close()
                    _ended.add(self.holder)
                    with suppress(UserError), impatient():
                        self.documents.delete(_of(self.holder))

    def _heartbeat(self) -> None:
        began, me = time.monotonic(), psutil.Process()
        state = {"machine": machine(), "host": socket.gethostname(), "pid": me.pid, "started": me.create_time()}
        state["command"] = self.command
        self.documents.put(_of(self.holder), orjson.dumps(state | {"beat": began}))
        self._renewed = began


def _of(holder: str) -> str:
    return f"{FOLDER}holder-{holder}"


def _claims(found: tuple[bytes, str] | None) -> Claims:
    return [(holder, keys) for holder, keys in orjson.loads(found[0])[0]] if found else []


def _without(claims: Claims, one: tuple[str, list[str]]) -> Claims:
    return [claim for claim in claims if claim != one]


def _runs(pid: int, started: float) -> bool:
    try:
        return abs(psutil.Process(pid).create_time() - started) < 1.0
    except psutil.Error:
        return False
