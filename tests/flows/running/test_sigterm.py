"""SIGTERM where an exception would be lost: answered a moment later, not swallowed."""

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from storage import stopping
from storage.errors import Parked, UserError
from storage.sql import query
from storage.stopping import stopped_by_signals


class Key:
    """Something that a weak reference may point to."""


class Finalised:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


class Terminating(dict[object, int]):
    """A mapping whose clearing of a dead key is interrupted by SIGTERM, as a busy WeakKeyDictionary's may be."""

    def __delitem__(self, key: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        super().__delitem__(key)


#: A library that does without another one if that cannot be imported, whatever the reason.
OPTIONAL = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGTERM)
    import json
except Exception:
    json = None
"""


def kill_in_a_finaliser() -> None:
    Finalised()


def kill_in_a_callback() -> None:
    mapping: weakref.WeakKeyDictionary[Key, int] = weakref.WeakKeyDictionary()
    mapping.data = Terminating()  # type: ignore[attr-defined]
    key = Key()
    mapping[key] = 1
    del key


def kill_in_an_import() -> None:
    import_module("optional_at_sigterm")


def go_on_for_seconds(killed: Callable[[], object]) -> None:
    with stopped_by_signals():
        killed()
        time.sleep(5)


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """A shell starts what runs in its background with Ctrl-C ignored: statements would go on for hours."""
    was = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, was)


@pytest.fixture(autouse=True)
def _optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "optional_at_sigterm.py").write_text(OPTIONAL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "optional_at_sigterm", raising=False)


@pytest.mark.parametrize("killed", [kill_in_a_finaliser, kill_in_a_callback, kill_in_an_import])
def test_a_signal_where_an_exception_would_be_lost_is_not(
    killed: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    was = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGALRM)
    with pytest.raises(Parked, match="stopped by SIGTERM"):
        go_on_for_seconds(killed)
    assert "Exception ignored" not in capsys.readouterr().err
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGALRM)) == was


#: Longer than any of this may take, a function of Python's in it or none.
STATEMENTS = {
    "a function of Python's": "select count(band(range % 9, 8)) from range(300000000)",
    "a function over Arrow": "select sum(pass_at_k(200::bigint, (range % 9)::bigint, 8)) from range(30000000000)",
    "DuckDB's own": "select sum(a.range * b.range) from range(2000000) a, range(2000000) b",
}


def stopped(statement: str, how: signal.Signals) -> None:
    """By a signal from another thread, while DuckDB is at work in this one."""
    with stopped_by_signals():
        threading.Timer(0.2, os.kill, (os.getpid(), how)).start()
        query(statement)


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS.keys())
def test_a_signal_inside_duckdb_is_what_it_is_anywhere(statement: str) -> None:
    with pytest.raises(Parked, match="stopped by SIGTERM"):
        stopped(statement, signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        stopped(statement, signal.SIGINT)


def test_what_swallows_a_signal_is_asked_again() -> None:
    """A library that takes Ctrl-C for an error of its own, and goes on, let a study run to its end."""

    def swallow_and_go_on() -> None:
        with stopped_by_signals():
            with suppress(BaseException):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5)
            stopping.end_if_stopped()

    with pytest.raises(KeyboardInterrupt):
        swallow_and_go_on()
    stopping.end_if_stopped()  # and afterwards nobody is stopped any more


def test_a_child_does_not_hear_signals_from_its_first_instruction_on() -> None:
    """The first process that multiprocessing starts too."""
    code = """
import multiprocessing, signal, time
from storage.stopping import children_ignore

with children_ignore(signal.SIGTERM):
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(1,))
    child.start()
child.terminate()
child.join()
print(child.exitcode)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], capture_output=True, text=True)
    assert done.stdout == "0\n", done.stderr


def test_an_error_that_a_library_makes_of_a_signal_is_the_signal() -> None:
    """As where transformers tries several processors of a model, and an engine names the missing one."""

    def load() -> None:
        with suppress(Exception):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        raise UserError("encoder: it has no feature extractor")

    with pytest.raises(Parked, match="stopped by SIGTERM"):
        go_on_for_seconds(load)
