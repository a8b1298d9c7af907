"""Signals that stop a run. SIGTERM raises `Parked` (exit code 75), and Ctrl-C KeyboardInterrupt (exit code 130)."""

import _weakrefset
import signal
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import CodeType, FrameType

from storage.errors import Parked

#: Delay before a signal is handled again, if it arrived where an exception would be lost.
RETRY_SECONDS = 0.05
#: Longest time to wait until an import ends.
PATIENCE_SECONDS = 4.0
#: A second signal within this time is ignored, because `timeout`, Slurm and others signal a process and its group.
TWICE_SECONDS = 0.5
STOPPED = "stopped by SIGTERM: all finished rollouts and steps are kept; the same command resumes it"
#: Files whose code calls the callbacks of weak references.
CALLBACKS = (weakref.__file__, _weakrefset.__file__)
#: The signals that this process received. The process ends with the last one.
_received: list[signal.Signals] = []


def was_stopped() -> bool:
    """Return whether a signal asked this process to stop, even if a library raised another error for it."""
    return bool(_received)


def end_if_stopped() -> None:
    """Raise the exception for a stop again if a library swallowed it. Steps and batches call this before they begin."""
    if _received:
        raise _ending()


def _ending() -> BaseException:
    return KeyboardInterrupt() if _received[-1] == signal.SIGINT else Parked(STOPPED)


@contextmanager
def stop_over_errors() -> Iterator[None]:
    """Raise the stop in place of a later error. A library that tries several ways to load a model may take the stop for
    a failed try, and then raises its own error."""
    try:
        yield
    except Exception as error:
        if not _received or (isinstance(error, Parked) and _received[-1] != signal.SIGINT):
            raise
        raise _ending() from error


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGINT into exceptions in this block. The current batch or step is lost, but a started engine
    step or checkpoint is finished first. A job that was started to ignore Ctrl-C still ignores it."""
    times: list[float] = []
    raised: list[float] = []
    _received.clear()

    def stop(number: int, frame: FrameType | None) -> None:
        moment = time.monotonic()
        if raised and moment - raised[-1] < TWICE_SECONDS:
            return
        times.append(moment)
        if number != signal.SIGALRM:
            _received.append(signal.Signals(number))
        stack = [*_stack(frame)]
        # a finaliser or the callback of a weak reference loses an exception; an import reports a missing library
        swallows = any(code.co_name == "__del__" or code.co_filename in CALLBACKS for code in stack)
        imports = any(code.co_filename.startswith("<frozen importlib") for code in stack)
        if swallows or (imports and moment - times[0] < PATIENCE_SECONDS):
            signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
            return
        raised.append(moment)
        raise _ending()

    deaf = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    obeyed = (signal.SIGTERM, signal.SIGALRM) if deaf else (signal.SIGTERM, signal.SIGALRM, signal.SIGINT)
    was = {number: signal.signal(number, stop) for number in obeyed}
    try:
        with stop_over_errors():
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _received.clear()
        for number, handler in was.items():
            signal.signal(number, handler)


@contextmanager
def children_ignore(*signals: signal.Signals) -> Iterator[None]:
    """Let processes that this block starts ignore Ctrl-C and these signals. The parent process ends its children."""
    resource_tracker.ensure_running()  # it unblocks both signals in this process when it starts, so start it now
    was = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *signals})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, was)


def _stack(frame: FrameType | None) -> Iterator[CodeType]:
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back
