"""Letters of array axes are explained where a reader looks for them."""

from __future__ import annotations

import re
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
ARRAY = re.compile(r"\b[a-z][a-z0-9_]*_([A-Z]{1,4})\b")
#: Names of the PEFT format.
FOREIGN = {"lora_A", "lora_B"}


def test_every_axis_letter_is_explained() -> None:
    table = (REPO / "docs" / "architecture.md").read_text().split("## Axes")[1]
    explained = {
        letter for row in re.findall(r"^\| ([A-Z](?:, [A-Z])*) \|", table, re.MULTILINE) for letter in row.split(", ")
    }
    used: dict[str, str] = {}
    for path in sorted((REPO / "tasks").rglob("*.py")):
        for found in ARRAY.finditer(path.read_text()):
            if found[0] not in FOREIGN:
                used |= dict.fromkeys(found[1], f"{path.relative_to(REPO)}: {found[0]}")
    assert len(used) > 10
    assert not {letter: where for letter, where in used.items() if letter not in explained}
