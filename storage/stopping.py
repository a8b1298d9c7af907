"""SIGTERM, which a pre-empted machine says: a wall that a run parks at, wherever the program is. And Ctrl-C there."""

from __future__ import annotations

import _weakrefset
import signal
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

from storage.errors import Parked, UserError

#: A signal that came where an exception would be lost is answered this much later.
RETRY_SECONDS = 0.05
#: For so long an import is waited for: it may take longer than a pre-empted machine has.
PATIENCE_SECONDS = 10.0
#: `timeout`, Slurm and others tell a process and its group: who is told twice within this time is told once.
TWICE_SECONDS = 0.5
STOPPED = "stopped by SIGTERM: all finished rollouts and steps are kept; the same command goes on"
#: Where weak references are cleared.
CALLBACKS = (weakref.__file__, _weakrefset.__file__)
#: Signals that asked this process to stop.
_received: list[int] = []


def was_stopped() -> bool:
    """Return whether a signal asked this process to stop. C++ that calls Python may turn that into another error."""
    return bool(_received)


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """A pre-empted machine says SIGTERM: stop within 30 s, which loses the batch or step in flight and nothing else.
    A pack, an engine's step or a checkpoint that has begun is finished first; that is what takes time. Ctrl-C stays
    KeyboardInterrupt."""
    _received.clear()
    told: list[float] = []
    raised: list[float] = []
    pressed: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        _received.append(number)
        if raised and time.monotonic() - raised[-1] < TWICE_SECONDS:
            return
        told.append(time.monotonic())
        if _swallows(frame) or (_imports(frame) and told[-1] - told[0] < PATIENCE_SECONDS):
            signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
            return
        raised.append(time.monotonic())
        raise Parked(STOPPED)

    def interrupt(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        _received.append(number)
        signal.default_int_handler(number, frame)

    was = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGALRM)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        was[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception as error:
        if told and not isinstance(error, UserError):  # C++ that calls Python may make an error of its own of it
            parked = _of(error, Parked, "SIGTERM")
            raise Parked(STOPPED if parked else f"{STOPPED}; it ended with {_said(error)}") from error
        if pressed and _of(error, KeyboardInterrupt, "KeyboardInterrupt", "interrupted"):
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in was.items():
            signal.signal(number, handler)


def _of(error: BaseException | None, raised: type[BaseException], *words: str) -> bool:
    """Whether it is what became of the handler's exception; else something was wrong beside it, which is said."""
    while error is not None:
        if isinstance(error, raised) or any(word in str(error) for word in words):
            return True
        error = error.__cause__ or error.__context__
    return False


def _said(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _swallows(frame: FrameType | None) -> bool:
    """Whether an exception raised here would be printed and lost, as in a finaliser or a weak reference's callback."""
    return any(code.co_name == "__del__" or code.co_filename in CALLBACKS for code in _stack(frame))


def _imports(frame: FrameType | None) -> bool:
    """Whether an import is under way: who does without a library that cannot be imported takes the exception for that,
    and C++ that calls Python while it loads ends the process."""
    return any(code.co_filename.startswith("<frozen importlib") for code in _stack(frame))


def _stack(frame: FrameType | None) -> Iterator[CodeType]:
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back
