"""Fixtures that several test folders share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import mini
from tests.needs import lacks

REPO = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the real problem sets and published results; tests that need it skip loudly without it."""
    folder = Path(os.environ.get("VARBAND_SHARED", REPO.parent / "shared"))
    if not (folder / "data" / "SOURCES.md").exists():
        lacks("shared", f"no shared data under {folder}; set VARBAND_SHARED to the folder that holds data/SOURCES.md")
    return folder


@pytest.fixture(scope="session")
def published(shared: Path) -> Path:
    """The files of the published study."""
    return shared / "data" / "published"


@pytest.fixture(scope="session")
def replayed(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The store of the published study, replayed once; tests only look at it."""
    from flows.published.replay import replay
    from storage.artifacts.store import Store

    root = tmp_path_factory.mktemp("replayed")
    replay(published, Store(root))
    with unchanged(root):
        yield root


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The store of a finished mini demo, made once by the real engine; tests only look at it."""
    root = tmp_path_factory.mktemp("mini") / "store"
    mini.finish(root)
    with unchanged(root):
        yield root


@contextmanager
def unchanged(root: Path) -> Iterator[None]:
    """Fails if the artifacts below `root` are not at the end what they were."""

    def look() -> dict[str, tuple[int, int]]:
        found = [p for p in root.glob("*/*/**/*") if p.is_file() and not p.relative_to(root).parts[0].startswith(".")]
        return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in found}

    before = look()
    yield
    assert look() == before, f"a test changed {root}, which others look at"
