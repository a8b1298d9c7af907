"""A heartbeat: who does not hear it any more takes the run for lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from storage.errors import UserError

BEAT_SECONDS = 10.0


@contextmanager
def beating(beat: Callable[[], None], every: float = BEAT_SECONDS) -> Iterator[None]:
    """Call `beat` every few seconds from a thread while the block runs."""
    over = threading.Event()

    def loop() -> None:
        while not over.wait(every):
            with suppress(UserError):  # one that finds no room is missed; the run's own writing says so
                beat()

    thread = threading.Thread(target=loop, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
