"""Overrides of a root, people's verdicts above the grader's: `overrides/<time>.jsonl`, all kept; the newest holds."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

from storage.mirror import mirror_of

FOLDER = "overrides"
#: Where they lie, and where earlier versions left them: read together, by their times.
FOLDERS = (FOLDER, "settled")


def put_overrides(root: Path, text: str) -> Path:
    """Make a file of overrides the active one, whole or not at all; an empty one ends what was active."""
    folder, aside = root / FOLDER, root / ".scratch" / f"overrides-{uuid.uuid4().hex}"
    folder.mkdir(parents=True, exist_ok=True)
    aside.parent.mkdir(parents=True, exist_ok=True)
    aside.write_text(text, encoding="utf-8")
    target = folder / f"{time.time_ns():020d}.jsonl"
    os.rename(aside, target)
    if mirror := mirror_of(root):
        mirror.push(target)
    return target


def newest_overrides(root: Path) -> tuple[str, str]:
    """(text, name) of the active overrides; empty if there are none."""
    if mirror := mirror_of(root):
        for folder in FOLDERS:
            mirror.sync(folder)
    files = sorted((path for name in FOLDERS for path in (root / name).glob("*.jsonl")), key=lambda p: p.name)
    return (files[-1].read_text(encoding="utf-8"), str(files[-1])) if files else ("", "")
