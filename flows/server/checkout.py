"""A worker runs the code of its own environment: where that lies."""

from __future__ import annotations

from pathlib import Path

REPO = Path(__file__).resolve().parents[2]


def enter_checkout() -> dict[str, str]:
    """Pull step of every deployment: a run works in the checkout that its worker's Python imports `flows` from."""
    return {"directory": str(REPO)}
