"""What is damaged is set aside under `<root>/.damaged`, never deleted: somebody may still read something in it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

DAMAGED = ".damaged"


def set_aside(root: Path, path: Path) -> Path:
    """Where the file or folder went."""
    target = root / DAMAGED / datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f") / path.relative_to(root)
    target.parent.mkdir(parents=True)
    os.rename(path, target)
    return target
