"""Fixtures that several test folders share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the real problem sets and published results; tests that need it skip loudly without it."""
    folder = Path(os.environ.get("VARBAND_SHARED", REPO.parent / "shared"))
    if not (folder / "data" / "SOURCES.md").exists():
        if os.environ.get("VARBAND_REQUIRE_SHARED"):
            pytest.fail(f"no shared data under {folder}: VARBAND_REQUIRE_SHARED says that it must be there")
        pytest.skip(f"no shared data under {folder}; set VARBAND_SHARED to the folder that holds data/SOURCES.md")
    return folder
