"""What is damaged is set aside under `<root>/.damaged`, never deleted: somebody may still read something in it."""

from __future__ import annotations

import os
import uuid
from datetime import UTC, datetime
from pathlib import Path

from storage.durable import sync, write_durably
from storage.roots import linkless

DAMAGED = ".damaged"


def set_aside(root: Path, path: Path) -> Path:
    """Where the file or folder went."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    target = linkless(root, f"{DAMAGED}/{moment}") / path.relative_to(root)
    target.parent.mkdir(parents=True)
    os.rename(path, target)
    return target


def put_back(path: Path, content: bytes) -> Path:
    """Put what was whole of a file in its place; beside it where its writer has begun another meanwhile."""
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    write_durably(aside, content)
    try:
        target = path
        os.link(aside, target)
    except FileExistsError:
        target = path.with_stem(f"{path.stem}-{uuid.uuid4().hex[:8]}")
        os.link(aside, target)
    finally:
        aside.unlink()
    sync(target.parent)
    return target
