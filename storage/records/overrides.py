"""Overrides of a root, people's verdicts above the grader's: `overrides/<time>.jsonl`, all kept; the newest holds."""

from __future__ import annotations

import time
from pathlib import Path

from storage.mirror import mirror_of
from storage.records.record import keep

FOLDER = "overrides"


def put_overrides(root: Path, text: str) -> Path:
    """Make a file of overrides the active one, whole or not at all; an empty one ends what was active."""
    files = override_files(root)
    newest = max((int(path.stem) for path in files if path.stem.isdecimal()), default=0)
    # the newest holds, also where the clock was set back since the last
    target = root / FOLDER / f"{max(time.time_ns(), newest + 1):020d}.jsonl"
    return keep(root, target, text.encode())


def override_files(root: Path) -> list[Path]:
    """Oldest first."""
    if mirror := mirror_of(root):
        mirror.sync(FOLDER)
    return sorted((root / FOLDER).glob("*.jsonl"))


def newest_overrides(root: Path) -> tuple[str, str]:
    """(text, name) of the active overrides; empty if there are none."""
    files = override_files(root)
    return (files[-1].read_text(encoding="utf-8"), str(files[-1])) if files else ("", "")
