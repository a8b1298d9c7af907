"""Fixtures that several test folders share."""

import atexit
import fcntl
import gc
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Before anything loads OpenMP: workers side by side have a core each, and threads that wait for each other spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests import mini, warm
from tests.needs import lacks

#: Other tests use the processor too: how long an example takes says nothing of it.
hypothesis.settings.register_profile("whole", deadline=None)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=20)
REPO = Path(__file__).resolve().parent.parent


#: A file whose tests are all slow. It is not even imported where slow tests are not wanted: Prefect's server alone takes 8 s.
ALL_SLOW = re.compile(r"^pytestmark = .*mark\.(slow|chaos)", re.MULTILINE)
NO_TIME = "no time left"
STARTED = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--minutes", type=float, help="start no test after so many minutes; begin with other files each day"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STARTED] = time.monotonic()
    hypothesis.settings.load_profile("quick" if "not slow" in str(config.getoption("markexpr")) else "whole")
    atexit.register(gc.unfreeze)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        started = ExitStack()
        started.enter_context(warm.servers())
        config.add_cleanup(started.close)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    helper = collection_path.is_relative_to(REPO / "tests") and not collection_path.name.startswith("test_")
    if collection_path.suffix == ".py" and helper:
        return True  # what has no tests has no doctests either, and would be imported for them
    wanted = str(config.getoption("markexpr"))
    named = str(collection_path) in {str(Path(word.split("::")[0]).resolve()) for word in config.args}
    if "not slow" in wanted and collection_path.suffix == ".py" and not named:
        return bool(ALL_SLOW.search(collection_path.read_text(encoding="utf-8"))) or None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that need a browser as slow. With --minutes, begin with another file each day; without, with one file
    that makes the store of the demo, which other workers need only when they have run what does without it."""
    readers: dict[Path, int] = {}
    for item in items:
        needs = getattr(item, "fixturenames", ())
        if "browser" in needs:
            item.add_marker("slow")
        elif "demo_store" in needs and not item.get_closest_marker("slow"):
            readers.setdefault(item.path, -1 if not readers else 1)
    if config.getoption("minutes") is not None:
        files = sorted({str(item.path) for item in items})
        first = date.today().toordinal() * 7 % max(1, len(files))
        turn = {name: (place - first) % len(files) for place, name in enumerate(files)}
        items.sort(key=lambda item: turn[str(item.path)])
    else:
        items.sort(key=lambda item: readers.get(item.path, 0))


def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes = item.config.getoption("minutes")
    if minutes is not None and time.monotonic() - item.config.stash[STARTED] > 60 * minutes:
        pytest.skip(NO_TIME)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left = [r.nodeid.split("::")[0] for r in terminalreporter.stats.get("skipped", []) if NO_TIME in str(r.longrepr)]
    if left:
        terminalreporter.section("left out, for want of time")
        for name, tests in Counter(left).items():
            terminalreporter.line(f"{name}: {tests} tests")


@pytest.fixture(scope="module", autouse=True)
def looked_through_once() -> None:
    """Search for cycles only what the last file's tests made. All of it takes half a second where vLLM is loaded, for
    each of 300 files, and again whenever statsmodels collects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def graders() -> Iterator[Any]:
    """The installed grader's processes, started once."""
    from tasks.engines.grading.graders import Graders

    with Graders() as made:
        yield made


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
    from flows.replay import replay
    from storage.artifacts.store import Store

    root = made_once(tmp_path_factory, "replayed", lambda root: replay(published, Store(root)))
    with unchanged(root):
        yield root


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The store of a finished mini demo, made once by the real engine; tests only look at it."""
    root = made_once(tmp_path_factory, "demo", mini.finish)
    with unchanged(root):
        yield root


@pytest.fixture(scope="module")
def own_demo_store(demo_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the finished mini demo for one file of tests, which may change it."""
    return shutil.copytree(demo_store, tmp_path_factory.mktemp("own") / "store")


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
