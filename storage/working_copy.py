"""Files of a bucket and their copies in a folder: brought and uploaded, packed where there are many small ones."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from storage.durable import write_durably
from storage.objects import CONNECTIONS, Listed, Objects
from storage.packs import FOLDER, LOOSE, Small, pack, packed
from storage.roots import inside

#: A file of the copy that is younger may be about to be uploaded.
UNDERWAY_SECONDS = 60.0


class WorkingCopy(Objects):
    """Safe to share between threads. Errors of the server: UserError, after the client's own retries."""

    def __init__(self, root: Path, address: str) -> None:
        super().__init__(root, address)
        self._loose: dict[str, Small] = {}
        self._turn = threading.Lock()

    def push(self, path: Path) -> None:
        """Upload one file of the working copy under its own name."""
        self.put(path.relative_to(self.root).as_posix(), path)

    def record(self, path: Path, content: bytes, *, lasting: bool) -> None:
        """Put a record that may change. lasting: it will not soon."""
        etag = self.put(name := path.relative_to(self.root).as_posix(), content)
        if lasting and etag:
            self.pack_later(Small(name, etag, content))

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

    def _bring(self, small: Mapping[str, Listed], packs: Iterable[str] | None = None) -> None:
        """Make the working copy of these objects what the listing says, out of packs where many are behind."""
        behind = {name: one.etag for name, one in small.items() if not one.holds(_content(self.root / inside(name)))}
        found = {}
        if len(behind) > LOOSE:
            found = packed(self, self.list(FOLDER) if packs is None else packs, behind)
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            loose = [one for one in pool.map(self._small, behind.keys() - found.keys()) if one]
        for one in (*found.values(), *loose):
            self._place(one)
        if len(loose) > LOOSE:
            pack(self, loose)

    def _small(self, name: str) -> Small | None:
        found = self.get(name)
        return None if found is None else Small(name, found[1], found[0])

    def _place(self, one: Small) -> None:
        write_durably(self.root / one.name, one.content)

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

    def pack_later(self, one: Small) -> None:
        """With others, or when `pack_now` is called."""
        with self._turn:
            self._loose[one.name] = one
        if len(self._loose) >= LOOSE:
            self.pack_now()

    def pack_now(self) -> None:
        """What this process put and has not packed: it may be about to end."""
        with self._turn:
            mine, self._loose = list(self._loose.values()), {}
        if mine:
            pack(self, mine)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
