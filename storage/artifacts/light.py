"""Light artifacts: copies that were made without some of their files, and say which."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import orjson

#: In the folder of a light artifact: paths of its manifest that this copy was made without.
LEFT = "left.json"


def left_out(folder: Path) -> frozenset[str]:
    """Files of an artifact's manifest that are elsewhere."""
    try:
        return frozenset(orjson.loads((folder / LEFT).read_bytes()))
    except (OSError, orjson.JSONDecodeError):
        return frozenset()


def mark_light(folder: Path, left: Collection[str]) -> None:
    if left:
        (folder / LEFT).write_bytes(orjson.dumps(sorted(left)))
