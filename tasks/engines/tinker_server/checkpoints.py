"""The Tinker server's files: checkpoints of models, and the requests that a restarted server repeats.

A checkpoint is a folder `<model id>/<kind>/<name>/` with a shape.json, written atomically. Kind `weights` is a state to
resume from; `sampler_weights` and `external_weights` are adapters in PEFT format.

A model's requests since its last saved state are in requests.sqlite. A restarted server repeats them when a client
names that model again. Requests for samples are not stored, because the SDK sends them again.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from storage.errors import UserError
from tasks.engines.learning.checkpoints import replacing

PREFIX = "tinker://"
KINDS = {"weights": "training", "sampler_weights": "sampler", "external_weights": "external"}
SHAPE = "shape.json"


class Missing(UserError):
    """A session, model, request or checkpoint that this server does not have."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A model in training without its weights. targets: its adapted layers."""

    base_model: str
    rank: int
    targets: tuple[str, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    folder: Path
    shape: Shape

    @property
    def path(self) -> str:
        return PREFIX + "/".join(self.folder.parts[-3:])

    @property
    def time(self) -> str:
        """Return the time when the checkpoint was saved, in ISO format."""
        return datetime.fromtimestamp((self.folder / SHAPE).stat().st_mtime, UTC).isoformat()


def folder_of(root: Path, path: str) -> Path:
    """Return the folder of a tinker:// path, which may not exist. Raise UserError if the path has another form."""
    parts = path.removeprefix(PREFIX).split("/")
    if not path.startswith(PREFIX) or len(parts) != 3 or parts[1] not in KINDS:
        raise UserError(f"{path!r} is not tinker://MODEL/KIND/NAME with a KIND of {', '.join(KINDS)}")
    if any(not part or part.startswith(".") for part in parts):
        raise UserError(f"{path!r} has a part that is empty or begins with a dot")
    return root.joinpath(*parts)


def there(root: Path, path: str) -> bool:
    return (folder_of(root, path) / SHAPE).is_file()


def find(root: Path, path: str) -> Checkpoint:
    """Return the checkpoint of a tinker:// path. Raise Missing if there is no such checkpoint."""
    folder = folder_of(root, path)
    if not there(root, path):
        raise Missing(f"there is no checkpoint {path}")
    given = json.loads((folder / SHAPE).read_text())
    return Checkpoint(folder, Shape(**{**given, "targets": tuple(given["targets"])}))


@contextmanager
def writing(root: Path, path: str, shape: Shape, *, overwrite: bool = False) -> Iterator[Path]:
    """Write a checkpoint into the yielded folder. Raise UserError if the name is taken."""
    folder = folder_of(root, path)
    if there(root, path) and not overwrite:
        raise UserError(f"checkpoint {path} is there already; choose another name, or overwrite it")
    with replacing(folder) as beside:
        yield beside
        (beside / SHAPE).write_text(json.dumps(asdict(shape)))


def listed(root: Path, model_id: str) -> list[Checkpoint]:
    """Return a model's checkpoints, newest first."""
    found = (find(root, PREFIX + "/".join(file.parts[-4:-1])) for file in root.glob(f"{model_id}/*/[!.]*/{SHAPE}"))
    return sorted(found, key=lambda one: one.time, reverse=True)


#: When the server starts, it forgets sessions without a sign of life for this time.
KEPT_SECONDS = 7 * 24 * 3600


class Requests:
    """Requests in an SQLite file, by the id of their session, model or sampler, in the order of their numbers."""

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
        """Note that a session's client is alive. Return whether the session is known."""
        if new:
            self._all("insert into sessions values (?, ?)", session, time.time())
        return bool(self._all("update sessions set seen = ? where id = ? returning id", time.time(), session))

    def forget(self, session: str) -> None:
        """Delete a session with its models and samplers."""
        self._all("delete from requests where id glob ? || ':*'", session)
        self._all("delete from sessions where id = ?", session)

    def keep(self, of: str, number: int, path: str, body: bytes, encoding: str | None = None) -> None:
        """Write a request to disk, before it is queued."""
        self._all("insert or ignore into requests values (?, ?, ?, ?, ?)", of, number, path, body, encoding)

    def saved(self, of: str, number: int, path: str, body: bytes) -> None:
        """Replace all requests before `number`, which saved a state, by one request that loads this state."""
        with self._lock, self._file:
            self._file.execute("delete from requests where id = ? and number < ?", (of, number))
            self._file.execute("insert into requests values (?, 0, ?, ?, null)", (of, path, body))

    def of(self, whose: str) -> list[tuple[int, str, bytes, str | None]]:
        """Return (number, path, body, encoding) of the requests of a model or sampler."""
        return self._all("select number, path, body, encoding from requests where id = ? order by number", whose)
