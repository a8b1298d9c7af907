"""What people settled for a root: files of overrides, `settled/<time>.jsonl`, all kept; the newest is in force."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

from storage.mirror import mirror_of

FOLDER = "settled"


def settle(root: Path, text: str) -> Path:
    """Put a file of overrides in force, whole or not at all; an empty one ends what was in force."""
    folder, aside = root / FOLDER, root / ".scratch" / f"settled-{uuid.uuid4().hex}"
    folder.mkdir(parents=True, exist_ok=True)
    aside.parent.mkdir(parents=True, exist_ok=True)
    aside.write_text(text, encoding="utf-8")
    target = folder / f"{time.time_ns():020d}.jsonl"
    os.rename(aside, target)
    if mirror := mirror_of(root):
        mirror.push(target)
    return target


def settled(root: Path) -> tuple[str, str]:
    """(text, name) of the overrides in force; empty if nobody settled anything."""
    if mirror := mirror_of(root):
        mirror.sync(FOLDER)
    files = sorted((root / FOLDER).glob("*.jsonl"))
    return (files[-1].read_text(encoding="utf-8"), str(files[-1])) if files else ("", "")
