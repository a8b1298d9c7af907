"""Objects of a bucket below a prefix: read, put on a condition, listed."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from typing import Any

from storage.errors import UserError

CONNECTIONS = 8


@dataclass(frozen=True, slots=True)
class Listed:
    """size: in bytes. etag: another one whenever the object is."""

    size: int
    etag: str

    def holds(self, content: bytes) -> bool:
        """Whether it is known to hold this. Never where ETags are no digests, as where the server encrypts."""
        return self.etag.strip('"') == md5(content, usedforsecurity=False).hexdigest()


class Objects:
    """One `s3://bucket/prefix`. root: the working copy, named in errors as what is kept."""

    def __init__(self, root: Path, address: str) -> None:
        self.root, self.address = root, address
        self.bucket, _, self.prefix = address.removeprefix("s3://").partition("/")

    @functools.cached_property
    def _fs(self) -> Any:
        try:
            import s3fs
        except ImportError:
            raise UserError(f"root {self.address}: object storage needs s3fs: install varband[s3]") from None
        retries = {"mode": "standard", "max_attempts": 6}
        return s3fs.S3FileSystem(use_listings_cache=False, config_kwargs={"retries": retries})

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    def _call(self, method: str, name: str, **arguments: Any) -> Any:
        try:
            return self._fs.call_s3(method, Bucket=self.bucket, Key=self._key(name), **arguments)
        except (FileNotFoundError, FileExistsError):
            raise
        except (OSError, RuntimeError) as error:
            if "PreconditionFailed" in str(error) or "412" in str(error):
                raise FileExistsError(name) from None
            raise UserError(
                f"root {self.address}: {method} of {name} failed ({error}); what was made is kept in {self.root}"
            ) from None

    def get(self, name: str) -> tuple[bytes, str] | None:
        """(content, etag) of an object; null if there is none."""
        try:
            answer = self._call("get_object", name)
        except FileNotFoundError:
            return None
        return _body(self._fs, answer), answer["ETag"]

    def put(self, name: str, content: bytes, **condition: str) -> str | None:
        """The new ETag; null if the condition does not hold. condition: IfNoneMatch="*" or IfMatch=etag."""
        try:
            return self._call("put_object", name, Body=content, **condition)["ETag"]
        except FileExistsError:
            return None

    def delete(self, name: str) -> None:
        self._call("delete_object", name)

    def check(self) -> None:
        """Errors: UserError if the root cannot be written, or the server ignores the condition of a put."""
        name = f".scratch/probe-{uuid.uuid4().hex}"
        if not self.put(name, b"varband", IfNoneMatch="*") or self.put(name, b"again", IfNoneMatch="*"):
            raise UserError(f"root {self.address}: the server ignores `If-None-Match`, so racing writers could collide")
        self.delete(name)

    def list(self, folder: str, *, but: Sequence[str] = ()) -> dict[str, Listed]:
        """What lies below a folder, by its name relative to the root. but: folders that are passed over."""
        found, after, cut = {}, "", len(self._key(""))
        try:
            while True:
                answer = self._fs.call_s3(
                    "list_objects_v2",
                    Bucket=self.bucket,
                    Prefix=self._key(f"{folder}/" if folder else ""),
                    **({"StartAfter": self._key(after)} if after else {}),
                )
                for entry in answer.get("Contents", ()):
                    found[after := entry["Key"][cut:]] = Listed(entry["Size"], entry["ETag"])
                if not answer["IsTruncated"]:
                    return {name: one for name, one in found.items() if name.partition("/")[0] not in but}
                if (room := after.partition("/")[0]) in but:
                    after = f"{room}0"  # what follows a slash
        except FileNotFoundError:
            return {}
        except (OSError, RuntimeError) as error:
            raise UserError(f"root {self.address}: not readable ({error}); check credentials and endpoint") from None


def _body(fs: Any, answer: Any) -> bytes:
    from fsspec.asyn import sync

    body: Any = sync(fs.loop, answer["Body"].read)
    return body
