"""Roots: the folder of artifacts and ledger, and how its files are named, read, and written durably.

A root is a folder (local disk, NFS), or `s3://bucket/prefix` with a working copy in a folder. The working copy has a
file with the address, and `storage.mirror` copies between the two. All other code uses the folder.
"""

import hashlib
import os
import re
import shlex
import uuid
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from storage.errors import UserError

#: File of a working copy with the address of its root.
ADDRESS = ".mirror"
#: Folders in which this process made working copies.
_CACHES = set[Path]()
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
PREFIX = re.compile(r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*")


def root_folder(text: str) -> Path:
    """Return the folder of a root that the user named. Raise UserError if the address is invalid."""
    if "\0" in text or not text.strip():
        raise UserError(f"--root {text[:80]!r}: no folder can have this name")
    if "://" not in text:
        return Path(text)
    parts = urlsplit(text)
    prefix = parts.path.strip("/")
    wrong = parts.scheme != "s3" or parts.query or parts.fragment or "@" in parts.netloc
    wrong = wrong or not BUCKET.fullmatch(parts.netloc)
    if wrong or (prefix and (not PREFIX.fullmatch(prefix) or {".", ".."} & set(prefix.split("/")))):
        raise UserError(
            "--root: an object-storage root is s3://bucket/prefix with plain names; credentials and endpoint come from"
            " the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL_S3)"
        )
    address = f"s3://{parts.netloc}/{prefix}".rstrip("/")
    digest = hashlib.sha256(address.encode()).hexdigest()[:12]
    folder = cache_home() / "roots" / f"{parts.netloc}-{digest}"
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
    _CACHES.add(folder.parent.resolve())
    aside = folder / f"{ADDRESS}.{os.getpid()}"
    aside.write_text(address)
    os.replace(aside, folder / ADDRESS)
    return folder


def root_option(folder: Path) -> str:
    """Return the --root option for a command that a message suggests; empty for the default root.

    >>> root_option(Path("my store"))
    " --root 'my store'"
    """
    if folder == root_folder(os.environ.get("VARBAND_ROOT") or ".varband"):
        return ""
    return f" --root {shlex.quote(address_of(folder) or str(folder))}"


def cache_home() -> Path:
    """Return the folder of caches, which may be deleted: working copies of object storage, compiled kernels."""
    return Path(os.environ.get("VARBAND_CACHE", Path.home() / ".cache" / "varband"))


def seconds_set(name: str, default: float) -> float:
    """Return a duration in seconds from the environment. Raise UserError if the variable is not a number."""
    try:
        return float(os.environ.get(name, default))
    except ValueError:
        raise UserError(f"{name}={os.environ[name]}: write a number of seconds, e.g. {default:g}") from None


def inside(path: str) -> str:
    """Return a relative path from a manifest or a listing. Raise UserError for a path that would leave its folder."""
    if path.startswith("/") or "\0" in path or "\\" in path or ".." in path.split("/"):
        raise UserError(f"{path[:80]!r} is outside the artifact root, so it is refused")
    return path


def linkless(folder: Path, name: str | Path) -> Path:
    """Return the path of a name in a folder. Raise UserError if the name leaves the folder, or if a part of it is a
    link: with links, a downloaded root could read, write or empty other files of this user."""
    path = folder
    for part in Path(inside(str(name))).parts:
        path = path / part
        if path.is_symlink():
            raise UserError(f"{path} is a link to {path.readlink()}; replace the link with the file or folder itself")
    return path


def address_of(folder: Path) -> str | None:
    """Return the object-storage address of a working copy; None for any other root. An address file outside this user's
    cache folder was not written by this program, and is ignored."""
    if folder.resolve().parent not in {(cache_home() / "roots").resolve(), *_CACHES}:
        return None
    try:
        return (folder / ADDRESS).read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def lock_file(root: Path, name: str) -> Path:
    """Return the path of a lock file. Create the folder of the file."""
    lock = linkless(root, f".locks/{name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    return lock


def write_durably(path: Path, content: bytes) -> None:
    """Write to a temporary file, flush it to disk, and rename it. If an OSError occurs, the old file stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with aside.open("wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(aside, path)
        sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flush a file to disk; for a folder, flush its list of names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Flush all files and folders below a path to disk, leaves first."""
    for path in sorted(folder.rglob("*"), reverse=True):
        sync(path)
    sync(folder)


def files_in(folder: Path, ending: str) -> list[Path]:
    """Return the sorted files with this ending. Raise OSError for an unreadable folder, which a glob would hide."""
    with suppress(FileNotFoundError):
        return sorted(folder / name for name in os.listdir(folder) if name.endswith(ending))
    return []
