"""Files of a bucket and their copies in a folder: brought and uploaded."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from storage.durable import write_durably
from storage.objects import CONNECTIONS, Listed, Objects
from storage.roots import inside

#: A file of the copy that is younger may be about to be uploaded.
UNDERWAY_SECONDS = 60.0
#: Records and manifests that are read at once.
SMALL_AT_ONCE = 32


class WorkingCopy(Objects):
    """Safe to share between threads. Errors of the server: UserError, after the client's own retries."""

    def push(self, path: Path) -> None:
        """Upload one file of the working copy under its own name."""
        self.put(path.relative_to(self.root).as_posix(), path)

    def forget(self, path: Path) -> None:
        """Delete one file of the working copy under its own name."""
        self.delete(path.relative_to(self.root).as_posix())

    def sync(self, folder: str) -> None:
        """Bring files that never change, or only grow, from the root to the copy, and the other way round."""
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
        """Make the copy's records below a folder those of the root: what another machine removed goes here too."""
        before, listed = time.time() - UNDERWAY_SECONDS, self.list(folder)
        self._bring(listed)
        for path in (self.root / folder).glob("*.json*"):
            if path.relative_to(self.root).as_posix() not in listed and path.stat().st_ctime < before:
                path.unlink(missing_ok=True)

    def _bring(self, small: Mapping[str, Listed]) -> None:
        """Make the working copy of these objects what the listing says."""
        behind = [name for name, one in small.items() if not one.holds(_content(self.root / inside(name)))]
        with ThreadPoolExecutor(SMALL_AT_ONCE) as pool:
            for name, found in zip(behind, pool.map(self.get, behind), strict=True):
                if found:
                    self._place(name, found[0])

    def _place(self, name: str, content: bytes) -> None:
        write_durably(self.root / name, content)

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


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
