"""Weight files as large as a model's, of which nothing is written but the header."""

from __future__ import annotations

import json
from pathlib import Path


def hollow_weights(file: Path, values: int, dtype: str = "BF16") -> Path:
    """One weight of so many values."""
    size = values * {"BF16": 2, "F32": 4}[dtype]
    told = {"weight": {"dtype": dtype, "shape": [values], "data_offsets": [0, size]}} if values else {}
    header = json.dumps(told).encode()
    with file.open("wb") as weights:
        weights.write(len(header).to_bytes(8, "little") + header)
        weights.truncate(8 + len(header) + size)
    return file
