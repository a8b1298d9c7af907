"""Running single stages from the command line: a session on a store, with progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from flows.running.sessions import stages_on
from storage.artifacts.store import Store
from tasks.stage import Progress


@contextmanager
def opened(root: Path, places: dict[str, Path], as_json: bool) -> Iterator[Store]:
    """The store at `root`, with a session in which stages can be called; engines are closed at the end."""
    store, shown = Store(root), _Bar(as_json)
    store.prepare()
    try:
        with stages_on(store, shown, places=places):
            yield store
    finally:
        shown.end()


class _Bar:
    """One line on standard error that says how far a stage is; nothing when nobody watches."""

    def __init__(self, as_json: bool) -> None:
        self._live = sys.stderr.isatty() and not as_json
        self._quiet, self._open, self._began = as_json, False, time.monotonic()

    def __call__(self, event: Progress) -> None:
        if event.event == "started":
            self._began = time.monotonic()
        elif event.event == "advanced" and self._live and event.total:
            seconds = max(time.monotonic() - self._began, 1e-3)
            left = (event.total - event.done) * seconds / max(event.done, 1)
            click.echo(
                f"\r{event.title}: {event.done:,} of {event.total:,} {event.unit},"
                f" {event.done / seconds:,.0f}/s, {left:.0f} s left  ",
                nl=False,
                err=True,
            )
            self._open = True
        elif event.event in ("made", "reused") and not self._quiet:
            self.end()
            how = f"made in {event.seconds:.1f} s" if event.event == "made" else "reused"
            click.echo(f"{event.title}: {how} ({event.ref})", err=True)

    def end(self) -> None:
        if self._open:
            click.echo("", err=True)
        self._open = False
