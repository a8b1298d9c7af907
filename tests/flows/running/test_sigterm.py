"""SIGTERM where an exception would be lost: answered a moment later, not swallowed."""

from __future__ import annotations

import os
import signal
import time
import weakref
from collections.abc import Callable

import pytest

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


def kill_in_a_finaliser() -> None:
    Finalised()


def kill_in_a_callback() -> None:
    mapping: weakref.WeakKeyDictionary[Key, int] = weakref.WeakKeyDictionary()
    mapping.data = Terminating()  # type: ignore[attr-defined]
    key = Key()
    mapping[key] = 1
    del key


def go_on_for_seconds(killed: Callable[[], None]) -> None:
    with stopped_by_sigterm():
        killed()
        time.sleep(5)


@pytest.mark.parametrize("killed", [kill_in_a_finaliser, kill_in_a_callback])
def test_a_signal_in_a_callback_is_not_lost(killed: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    was = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGALRM)
    with pytest.raises(Parked, match="stopped by SIGTERM"):
        go_on_for_seconds(killed)
    assert "Exception ignored" not in capsys.readouterr().err
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGALRM)) == was
