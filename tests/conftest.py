"""Fixtures that several test folders share."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import hypothesis
import pytest

# Before anything loads OpenMP: workers side by side have a core each, and threads that wait for each other spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests import mini, warm
from tests.needs import lacks

#: Other tests use the processor too: how long an example takes says nothing of it.
hypothesis.settings.register_profile("varband", deadline=None)
hypothesis.settings.load_profile("varband")
REPO = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    atexit.register(gc.unfreeze)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        started = ExitStack()
        started.enter_context(warm.servers())
        config.add_cleanup(started.close)


@pytest.fixture(scope="module", autouse=True)
def looked_through_once() -> None:
    """Memory that earlier tests left is searched for cycles between files alone: statsmodels' Holm searches all of it at
    each call, which is half a second where vLLM is loaded."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


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

    root = made_once(tmp_path_factory, "replayed", lambda root: replay(published, Store(root)))
    with unchanged(root):
        yield root


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The store of a finished mini demo, made once by the real engine; tests only look at it."""
    root = made_once(tmp_path_factory, "demo", lambda root: mini.finish(root, *mini.SIDE_BY_SIDE))
    with unchanged(root):
        yield root


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A store that all workers of a test run share: the first one makes it, the others wait."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"shared-{name}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            make(folder / "store")
            (folder / "made").touch()
    return folder / "store"


@contextmanager
def unchanged(root: Path) -> Iterator[None]:
    """Fails if the artifacts below `root` are not at the end what they were."""

    def look() -> dict[str, tuple[int, int]]:
        found = [p for p in root.glob("*/*/**/*") if p.is_file() and not p.relative_to(root).parts[0].startswith(".")]
        return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in found}

    before = look()
    yield
    assert look() == before, f"a test changed {root}, which others look at"
