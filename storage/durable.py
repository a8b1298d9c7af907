"""What exists whole or not at all, also after a power cut."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path


def write_durably(path: Path, content: bytes) -> None:
    """Written aside, flushed to the disk, renamed. Errors: OSError; then what was there before is there still."""
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
    """Flush a file or the names in a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Flush every file and folder below, leaves first."""
    for path in sorted(folder.rglob("*"), reverse=True):
        sync(path)
    sync(folder)


def files_in(folder: Path, ending: str) -> list[Path]:
    """Sorted. Errors: OSError for a folder that cannot be looked into; a glob takes that for an empty one."""
    with suppress(FileNotFoundError):
        return sorted(folder / name for name in os.listdir(folder) if name.endswith(ending))
    return []
