"""SIGTERM where an exception would be lost: answered a moment later, not swallowed."""

from __future__ import annotations

import os
import signal
import sys
import time
import weakref
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from flows.running import plan
from flows.running.plan import stopped_by_sigterm
from storage.errors import Parked


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


class Killing(set[object]):
    """The same of a WeakSet."""

    def discard(self, element: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        super().discard(element)


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


def kill_in_a_set() -> None:
    some: weakref.WeakSet[Key] = weakref.WeakSet()
    some.data = Killing()  # type: ignore[attr-defined]
    key = Key()
    some.add(key)
    del key


def kill_in_an_import() -> None:
    import_module("optional_at_sigterm")


def go_on_for_seconds(killed: Callable[[], object]) -> None:
    with stopped_by_sigterm():
        killed()
        time.sleep(5)


@pytest.fixture(autouse=True)
def _optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "optional_at_sigterm.py").write_text(OPTIONAL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "optional_at_sigterm", raising=False)


@pytest.mark.parametrize("killed", [kill_in_a_finaliser, kill_in_a_callback, kill_in_a_set, kill_in_an_import])
def test_a_signal_where_an_exception_would_be_lost_is_not(
    killed: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    was = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGALRM)
    with pytest.raises(Parked, match="stopped by SIGTERM"):
        go_on_for_seconds(killed)
    assert "Exception ignored" not in capsys.readouterr().err
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGALRM)) == was


def test_an_import_that_does_not_end_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_at_sigterm.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(20)"
    )
    monkeypatch.setattr(plan, "PATIENCE_SECONDS", 0.2)
    began = time.monotonic()
    with pytest.raises(Parked, match="stopped by SIGTERM"):
        go_on_for_seconds(lambda: import_module("slow_at_sigterm"))
    assert 0.2 <= time.monotonic() - began < 20
