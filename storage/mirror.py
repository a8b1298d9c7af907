"""A root on object storage, with a working copy in a folder.

The files of an artifact are uploaded under a prefix of this attempt, and then its manifest with a conditional put. So
the artifact exists whole or not at all, and the first of two writers wins. Ledger shards, charges and records are
single objects. Any server with conditional puts works: S3, MinIO, Ceph, R2.
"""

import functools
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from storage.artifacts.ref import Ref
from storage.errors import UserError
from storage.objects import CONNECTIONS, Listed, Objects
from storage.roots import ADDRESS, address_of, inside, write_durably

MANIFEST = "manifest.json"
#: Folders with many objects, which listings of artifacts and records leave out.
BULKY = (".leases", ".work", "ledger", "spending")
#: Seconds for which the state of an artifact is cached.
CACHED_SECONDS = 20.0
#: The upload of a younger file of the working copy may not have finished.
UNDERWAY_SECONDS = 60.0
#: Number of records and manifests that are read at the same time.
SMALL_AT_ONCE = 32


@functools.lru_cache(maxsize=64)
def _mirror(root: Path, address: str) -> "Mirror":
    return Mirror(root, address)


def mirror_of(root: Path) -> "Mirror | None":
    """Return the mirror of a working copy; None if the root is a plain folder."""
    address = address_of(root)
    return None if address is None else _mirror(root.resolve(), address)


class Mirror(Objects):
    """Copies between a bucket and its working copy. Thread-safe. Raise UserError if the server fails after retries."""

    def __init__(self, root: Path, address: str) -> None:
        super().__init__(root, address)
        self._heard: dict[str, tuple[float, int]] = {}

    # ---- files

    def push(self, path: Path) -> None:
        """Upload one file of the working copy under its name."""
        self.put(path.relative_to(self.root).as_posix(), path)

    def forget(self, path: Path) -> None:
        """Delete the object of one file."""
        self.delete(path.relative_to(self.root).as_posix())

    def sync(self, folder: str) -> None:
        """Copy files in both directions, for a folder whose files never change or only grow."""
        remote = self.list(folder)
        here = {
            p.relative_to(self.root).as_posix(): p.stat().st_size
            for p in (self.root / folder).rglob("*")
            if p.is_file() and p.suffix in (".parquet", ".json", ".jsonl")
        }
        behind = [name for name, one in remote.items() if here.get(name, -1) < one.size]
        self._download([(name, self.root / inside(name)) for name in behind])
        for name, size in here.items():
            if name not in remote or remote[name].size < size:
                self.push(self.root / name)

    def follow(self, folder: str) -> None:
        """Make the records of a folder equal to those in the bucket. Delete records that another machine removed."""
        before, listed = time.time() - UNDERWAY_SECONDS, self.list(folder)
        self._bring(listed)
        for path in (self.root / folder).glob("*.json*"):
            if path.relative_to(self.root).as_posix() not in listed and path.stat().st_ctime < before:
                path.unlink(missing_ok=True)

    def _bring(self, small: Mapping[str, Listed]) -> None:
        behind = [name for name, one in small.items() if not one.holds(_content(self.root / inside(name)))]
        with ThreadPoolExecutor(SMALL_AT_ONCE) as pool:
            for name, found in zip(behind, pool.map(self.get, behind), strict=True):
                if found:
                    self._place(name, found[0])

    def _download(self, pairs: Iterable[tuple[str, Path]]) -> None:
        def one(pair: tuple[str, Path]) -> None:
            name, target = pair
            target.parent.mkdir(parents=True, exist_ok=True)
            aside = target.with_name(f"{target.name}.{uuid.uuid4().hex}")
            try:
                self.fetch(name, aside)
                os.replace(aside, target)
            finally:
                aside.unlink(missing_ok=True)

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(one, pairs))

    # ---- artifacts

    def refresh(self, ref: Ref, *, files: bool = True, now: bool = False) -> None:
        """Update the working copy of one artifact. files: also the files other than rows."""
        local = self.root / ref.kind / str(ref)
        if not now and self._is_recent(str(ref), local / MANIFEST):
            return
        remote = self.get(f"{ref.kind}/{ref}/{MANIFEST}")
        try:
            if remote is None:
                return _remove(self.root, local)
            manifest = orjson.loads(remote[0])
            wanted = [e["path"] for e in manifest["files"] if files or "/" not in e["path"]]
            if _token(local) != manifest["token"]:
                _remove(self.root, local)
                self._fetch(ref, manifest, remote[0], wanted)
            else:
                missing = [p for p in wanted if not (local / inside(p)).exists()]
                self._download([(f"{ref.kind}/{ref}/{manifest['token']}/{p}", local / p) for p in missing])
        finally:
            if files:
                self._remember(str(ref), local / MANIFEST)

    def bring_rows(self, refs: Sequence[Ref]) -> None:
        """Download the rows of artifacts without their other files."""
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(lambda ref: self.refresh(ref, files=False, now=True), refs))

    def _remember(self, what: str, path: Path) -> None:
        self._heard[what] = time.monotonic(), _changed(path)

    def _is_recent(self, what: str, path: Path) -> bool:
        """Return whether the cached state is recent, and no other process has replaced the file in the meantime."""
        when, changed = self._heard.get(what, (-CACHED_SECONDS, 0))
        return time.monotonic() - when < CACHED_SECONDS and _changed(path) == changed

    def _fetch(self, ref: Ref, manifest: dict[str, Any], raw: bytes, wanted: Iterable[str]) -> None:
        aside = self.root / ".scratch" / f"pull-{ref}-{uuid.uuid4().hex}"
        try:
            aside.mkdir(parents=True)
            self._download([(f"{ref.kind}/{ref}/{manifest['token']}/{p}", aside / inside(p)) for p in wanted])
            (aside / MANIFEST).write_bytes(raw)
            target = self.root / ref.kind / str(ref)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                os.rename(aside, target)
        except FileNotFoundError:
            return  # the object was deleted during the download
        except OSError as error:
            if not (self.root / ref.kind / str(ref) / MANIFEST).exists():
                raise UserError(f"root {self.root}: {ref} could not be copied here ({error})") from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def publish(self, folder: Path, ref: Ref, *, over: str | None) -> bool:
        """Upload an artifact; return False if another writer was first. over: token of the artifact to replace."""
        raw = (folder / MANIFEST).read_bytes()
        manifest, name = orjson.loads(raw), f"{ref.kind}/{ref}/{MANIFEST}"
        attempt = f"{ref.kind}/{ref}/{manifest['token']}"
        paths = [e["path"] for e in manifest["files"]]
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(lambda p: self.put(f"{attempt}/{p}", folder / p), paths))
        etag = self.put(name, raw, IfNoneMatch="*")
        if not etag and over is not None and (remote := self.get(name)) is not None:
            old = orjson.loads(remote[0])["token"]
            if old == over and (etag := self.put(name, raw, IfMatch=remote[1])):
                self._discard(ref, old)
        if not etag:
            self._discard(ref, manifest["token"])
        self._heard.pop(str(ref), None)
        return etag is not None

    def token(self, ref: Ref) -> str | None:
        """Return the token of the artifact in the bucket; None if there is no such artifact."""
        remote = self.get(f"{ref.kind}/{ref}/{MANIFEST}")
        return None if remote is None else orjson.loads(remote[0])["token"]

    def _discard(self, ref: Ref, token: str) -> None:
        self.delete(*self.list(f"{ref.kind}/{ref}/{token}"))

    def remove(self, ref: Ref) -> None:
        """Delete an artifact, its manifest first."""
        self.delete(f"{ref.kind}/{ref}/{MANIFEST}")
        self.delete(*self.list(f"{ref.kind}/{ref}"))
        self._heard.pop(str(ref), None)

    # ---- unfinished artifacts

    def bring_work(self, ref: Ref | None = None) -> None:
        """Download files of an unfinished artifact (of all if `ref` is None) that this copy does not have yet."""
        names = [
            name for name in self.list(f".work/{ref}" if ref else ".work") if not (self.root / inside(name)).exists()
        ]
        for part in (False, True):  # JSON comes last: it marks a checkpoint as complete
            self._download([(n, self.root / n) for n in names if n.endswith(".json") == part])

    def keep_work(self, ref: Ref, paths: Iterable[Path]) -> None:
        """Upload these files of an unfinished artifact, JSON last, and delete its earlier files."""
        wanted, there = {p.relative_to(self.root).as_posix(): p for p in paths}, self.list(f".work/{ref}")
        for name in sorted(wanted.keys() - there.keys(), key=lambda name: name.endswith(".json")):
            self.push(wanted[name])
        self.delete(*(there.keys() - wanted.keys()))

    def refresh_names(self) -> None:
        """Download the manifests of all artifacts and the records of runs."""
        if self._is_recent("", self.root / ADDRESS):
            return
        began, listed = time.time(), self.list("", but=BULKY)
        small = {name: one for name, one in listed.items() if _is_manifest(name) or name.startswith("runs/")}
        self._bring(small)
        for path in self.root.glob(f"[a-z]*/*/{MANIFEST}"):
            gone = path.relative_to(self.root).as_posix() not in listed
            if gone and path.parent.stat().st_ctime < began and path.parts[-3] not in BULKY:
                _remove(self.root, path.parent)
        self._remember("", self.root / ADDRESS)

    def _place(self, name: str, content: bytes) -> None:
        """Write a record or manifest. Remove the rows if they belong to an older version of the artifact."""
        folder = self.root / name.rpartition("/")[0]
        if not _is_manifest(name) or _token(folder) == (manifest := orjson.loads(content))["token"]:
            return write_durably(self.root / name, content)
        _remove(self.root, folder)
        self._fetch(Ref.parse(folder.name), manifest, content, ())


def _is_manifest(name: str) -> bool:
    return name.count("/") == 2 and name.endswith(f"/{MANIFEST}") and not name.startswith((".", *BULKY))


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _token(folder: Path) -> str | None:
    try:
        return orjson.loads((folder / MANIFEST).read_bytes())["token"]
    except (OSError, ValueError, KeyError):
        return None


def _remove(root: Path, folder: Path) -> None:
    grave = root / ".scratch" / f"dropped-{folder.name}-{uuid.uuid4().hex}"
    grave.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        os.rename(folder, grave)
        shutil.rmtree(grave, ignore_errors=True)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
