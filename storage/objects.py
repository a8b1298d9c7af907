"""Objects of a bucket below a prefix, through `obstore`: get, conditional put, list, streaming to and from files."""

import functools
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from hashlib import md5
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from storage.errors import Unreachable, UserError
from storage.roots import seconds_set

T = TypeVar("T")
CONNECTIONS = 8
#: Bytes of each part of an upload, parts in memory at the same time, and the most parts (S3 allows 10,000).
PART_BYTES, PARTS_AT_ONCE, MOST_PARTS = 8 << 20, 2, 9_000
#: Seconds without an answer before a command stops, and before a run stops (`patient`).
COMMAND_PATIENCE, RUN_PATIENCE = 10.0, 300.0
NO_CREDENTIALS = "no credentials ({}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_in_runs = [COMMAND_PATIENCE]
_thread = threading.local()


@contextmanager
def patient() -> Iterator[None]:
    """Wait up to RUN_PATIENCE seconds for a silent server in this block."""
    _in_runs.append(RUN_PATIENCE)
    try:
        yield
    finally:
        _in_runs.pop()


@contextmanager
def impatient() -> Iterator[None]:
    """Do not wait for a silent server in this block and this thread."""
    before, _thread.impatient = getattr(_thread, "impatient", False), True
    try:
        yield
    finally:
        _thread.impatient = before


def _patience() -> float:
    return 0.0 if getattr(_thread, "impatient", False) else seconds_set("VARBAND_STORAGE_PATIENCE", _in_runs[-1])


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry of a listing. size: in bytes. etag: changes when the object changes."""

    size: int
    etag: str

    def holds(self, content: bytes) -> bool:
        """Return whether the object certainly has this content; False on servers whose ETag is not a digest."""
        return self.etag.strip('"') == md5(content, usedforsecurity=False).hexdigest()


class Objects:
    """A root in object storage, `s3://bucket/prefix`. root: its working copy, for error messages. Every method raises
    UserError if the server refuses a request, and Unreachable if the server does not answer."""

    def __init__(self, root: Path, address: str) -> None:
        self.root, self.address = root, address
        self.bucket, _, self.prefix = address.removeprefix("s3://").partition("/")
        self._silent_since = 0.0

    @functools.cached_property
    def _store(self) -> Any:
        try:
            from obstore.store import S3Store
        except ImportError:
            raise self._error("object storage needs obstore: install varband[s3]") from None
        credentials: Any = None
        if not os.environ.keys() & {"AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"} and find_spec("boto3"):
            from botocore.exceptions import BotoCoreError
            from obstore.auth.boto3 import Boto3CredentialProvider

            try:  # reads profiles and single sign-on, like the AWS command line
                credentials = Boto3CredentialProvider()
            except (BotoCoreError, ValueError) as error:
                raise self._error(NO_CREDENTIALS.format(error)) from None
        how: Any = {
            "client_options": {"allow_http": True, "connect_timeout": "5s", "read_timeout": "60s", "timeout": "12h"},
            # few retries here, because signals cannot interrupt them; `_call` retries for longer
            "retry_config": {"max_retries": 3, "retry_timeout": timedelta(seconds=5)},
            "credential_provider": credentials,
        }
        return S3Store(self.bucket, prefix=self.prefix or None, **how)

    def _error(self, message: str) -> UserError:
        return UserError(f"root {self.address}: {message}")

    def _call(self, does: str, request: Callable[[Any, Any], T]) -> T:
        """Return the answer to a request. Repeat the request while the server does not answer. request: gets obstore
        and the store. Raise FileNotFoundError for a missing object, FileExistsError for a failed condition."""
        store, failing = self._store, 0.0
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        while True:
            try:
                found = request(obstore, store)
                self._silent_since = 0.0
                return found
            except (AlreadyExistsError, PreconditionError):
                raise FileExistsError(does) from None
            except (BaseError, FileNotFoundError) as error:
                message, moment = str(error).partition("\n")[0], time.monotonic()
                if refusal := self._refusal(does, error, message):
                    raise refusal from None
                failing = failing or moment
                self._silent_since = since = min(failing, self._silent_since or failing)
                if moment - since >= (patience := _patience()):
                    raise Unreachable(
                        f"root {self.address}: storage did not answer for {moment - since:.0f} s ({_cause(message)});"
                        f" finished work is kept in {self.root}, and the same command resumes the run"
                    ) from None
                time.sleep(min(1.0, patience / 10))

    def _refusal(self, does: str, error: Exception, message: str) -> Exception | None:
        """Return the error of a refusal that is permanent; None if the request should be repeated."""
        if "NoSuchBucket" in str(error):
            return self._error(f"there is no bucket '{self.bucket}' at this server")
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(does)
        if "169.254." in message or "credential" in message.lower():
            return self._error(NO_CREDENTIALS.format(message))
        if re.search(r"status code: (?!408|429)[34]", message):
            return self._error(f"{does} was refused ({message[-300:]}); check credentials, bucket, region and endpoint")
        return None

    def get(self, name: str) -> tuple[bytes, str] | None:
        """Return (content, etag) of an object; None if it does not exist."""

        def request(obstore: Any, store: Any) -> tuple[bytes, str]:
            found = obstore.get(store, name)
            return bytes(found.bytes()), found.meta["e_tag"]

        try:
            return self._call(f"reading {name}", request)
        except FileNotFoundError:
            return None

    def fetch(self, name: str, target: Path) -> None:
        """Stream an object into a file. Raise FileNotFoundError if the object does not exist."""

        def request(obstore: Any, store: Any) -> None:
            with target.open("wb") as file:
                for block in obstore.get(store, name).stream(min_chunk_size=PART_BYTES):
                    file.write(block)

        self._call(f"reading {name}", request)

    def put(self, name: str, content: bytes | Path, **condition: str) -> str | None:
        """Write an object, streaming a file. Return its ETag, or None if the condition does not hold. condition:
        IfNoneMatch="*" or IfMatch=etag."""
        how: dict[str, Any] = {"mode": {"e_tag": condition["IfMatch"]} if "IfMatch" in condition else "create"}
        if not condition:
            size = content.stat().st_size if isinstance(content, Path) else len(content)
            how = {"chunk_size": max(PART_BYTES, size // MOST_PARTS), "max_concurrency": PARTS_AT_ONCE}
        try:
            put = self._call(f"writing {name}", lambda obstore, store: obstore.put(store, name, content, **how))
            return put["e_tag"]
        except FileNotFoundError:
            if "IfMatch" in condition:  # the object to replace does not exist
                return None
            raise
        except FileExistsError:  # perhaps this same request wrote it, and the answer was lost
            found = self.get(name)
            return found[1] if found and found[0] == content else None

    def delete(self, *names: str) -> None:
        if names:
            self._call(f"deleting {names[0]}", lambda obstore, store: obstore.delete(store, list(names)))

    def check(self) -> None:
        """Raise UserError if the root cannot be written, or if the server ignores the conditions of puts."""
        name = f".scratch/probe-{uuid.uuid4().hex}"
        if not self.put(name, b"varband", IfNoneMatch="*") or self.put(name, b"again", IfNoneMatch="*"):
            raise self._error("the server ignores `If-None-Match`, so racing writers could collide")
        self.delete(name)

    def list(self, folder: str, *, but: Sequence[str] = ()) -> dict[str, Listed]:
        """Return the objects of a folder, by their name in the root. but: folders to leave out."""
        found: dict[str, Listed] = {}

        def request(obstore: Any, store: Any, after: str | None) -> str | None:
            """Return where to continue, or None at the end of the listing."""
            for page in obstore.list(store, folder or None, offset=after, chunk_size=1000):
                for one in page:
                    if (room := one["path"].partition("/")[0]) in but:
                        return f"{room}0"  # "0" is the character after "/"
                    found[one["path"]] = Listed(one["size"], one["e_tag"])
            return None

        after: str | None = ""
        while after is not None:
            after = self._call(f"listing {folder}", functools.partial(request, after=after or None))
        return found


def _cause(message: str) -> str:
    """Return host and cause from an error message of obstore.

    >>> _cause("Error performing GET http://127.0.0.1:9/b?x=1 in 9ms, after 3 retries  - HTTP error: request failed")
    'http://127.0.0.1:9: HTTP error: request failed'
    """
    host = re.search(r"https?://[^/?\s]+", message)
    return f"{host[0] if host else 'no address'}: {message.rpartition(' - ')[2]}"
