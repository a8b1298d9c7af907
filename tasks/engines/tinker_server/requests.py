"""The accepted requests of the Tinker server on disk, so that a server that was killed continues where it was.

A model's requests since its last saved state are kept with their numbers. A restarted server repeats them when a client
names that model again; a saved state takes the place of the requests before it. Requests for samples are not kept,
because the SDK sends them again.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

#: Sessions without a sign of life for so long are forgotten when the server starts.
KEPT_SECONDS = 7 * 24 * 3600


class Requests:
    """Requests by the id of their session, model or sampler, in the order of their numbers, in an SQLite file."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._file = sqlite3.connect(root / "requests.sqlite", timeout=60, check_same_thread=False)
        self._file.executescript(
            "pragma journal_mode = wal; pragma synchronous = full;"
            "create table if not exists sessions (id text primary key, seen real);"
            "create table if not exists requests"
            " (id text, number integer, path text, body blob, encoding text, primary key (id, number))"
        )
        for (session,) in self._all("select id from sessions where seen < ?", time.time() - KEPT_SECONDS):
            self.forget(session)

    def sessions(self) -> set[str]:
        return {session for (session,) in self._all("select id from sessions")}

    def _all(self, sql: str, *given: object) -> list[tuple]:
        with self._lock, self._file:
            return self._file.execute(sql, given).fetchall()

    def seen(self, session: str, *, new: bool = False) -> bool:
        """Note that a session's client is alive, and return whether the session is known."""
        if new:
            self._all("insert into sessions values (?, ?)", session, time.time())
        return bool(self._all("update sessions set seen = ? where id = ? returning id", time.time(), session))

    def forget(self, session: str) -> None:
        """Delete a session with its models and samplers."""
        self._all("delete from requests where id glob ? || ':*'", session)
        self._all("delete from sessions where id = ?", session)

    def keep(self, of: str, number: int, path: str, body: bytes, encoding: str | None = None) -> None:
        """Write a request before it is queued."""
        self._all("insert or ignore into requests values (?, ?, ?, ?, ?)", of, number, path, body, encoding)

    def saved(self, of: str, number: int, path: str, body: bytes) -> None:
        """Replace all requests before the one that saved a state by a request that loads this state."""
        with self._lock, self._file:
            self._file.execute("delete from requests where id = ? and number < ?", (of, number))
            self._file.execute("insert into requests values (?, 0, ?, ?, null)", (of, path, body))

    def of(self, whose: str) -> list[tuple[int, str, bytes, str | None]]:
        """Return (number, path, body, encoding) of the requests of a model or sampler."""
        return self._all("select number, path, body, encoding from requests where id = ? order by number", whose)
