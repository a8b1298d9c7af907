"""How the terminal shows a plan, running stages, and the result of a run."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pyarrow as pa
from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from cli import options
from flows.running.forecast import COLUMNS, Forecast, amounts
from flows.running.plan import Planned
from flows.running.sessions import stages_on
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.estimates import Band
from storage.reading.figures import is_share
from storage.reading.query_cache import ask
from storage.reading.recorded import answering, first_screen, question_of
from storage.sql import query
from tasks.metering import OCCUPYING, SAMPLING
from tasks.stage import Progress as Event

#: Seconds between two progress lines in a pipe.
PIPED_SECONDS = 10.0
#: Characters of a bar in which all problems are in one band.
WIDTH = 30


class Watch:
    """Shows running stages. A terminal has a live line for each; a pipe gets progress and finished stages."""

    def __init__(self, store: Store | None = None, *, apart: bool = False) -> None:
        """Start the view. store: where new bands are read for bars. apart: print to standard error."""
        self.console, self._store, self.made = Console(stderr=apart, highlight=False), store, 0
        detail = TextColumn("{task.fields[unit]} [cyan]{task.fields[detail]}")
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), detail)
        self._bars = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=self.console)
        self._bar: dict[Ref, TaskID] = {}
        self._seen: set[Ref] = set()
        self.to_make: set[Ref] = set()
        self._printed: dict[Ref, float] = {}
        self._step: dict[Ref, Event] = {}
        self._waiting: dict[Ref, tuple[str, str, float]] = {}
        self._ended = threading.Event()
        self._live = Live(console=self.console, transient=True, get_renderable=lambda: self._bars)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        else:
            threading.Thread(target=self._tick, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._live.stop()

    def _tick(self) -> None:
        """In a pipe, print every PIPED_SECONDS how long each stage has waited for its engine or its first rollouts."""
        while not self._ended.wait(PIPED_SECONDS):
            for title, why, began in [*self._waiting.values()]:
                seconds = time.monotonic() - began
                self.console.print(f"  {title}: {why}, {seconds:.0f} s", markup=False, soft_wrap=True)

    def on_progress(self, event: Event) -> None:
        self._waiting.pop(event.ref, None)
        match event.event:
            case "started":
                waits = "waiting for the engine" if event.ref.kind in OCCUPYING else ""
                if waits:
                    self._waiting[event.ref] = event.title, waits, time.monotonic()
                self._bar[event.ref] = self._bars.add_task(event.title, total=None, unit="", detail=waits)
            case "advanced" if event.ref in self._bar and event.detail.startswith(SAMPLING):
                self._waiting[event.ref] = event.title, SAMPLING, time.monotonic()
                self._bars.update(self._bar[event.ref], completed=event.done, total=event.total, detail=SAMPLING)
            case "advanced" if event.ref in self._bar:
                detail = "" if event.unit == "steps" else event.detail  # each step has its own line
                how = {"completed": event.done, "total": event.total, "unit": event.unit, "detail": detail}
                self._bars.update(self._bar[event.ref], **how)  # type: ignore[arg-type]
                self._print_progress(event)
            case "noted":
                self.console.print(f"  {event.title}: {event.detail}", soft_wrap=True)
            case "made":
                if event.ref in self._bar:
                    self._bars.remove_task(self._bar.pop(event.ref))
                self.made += 1
                self._line("green", event, f"made {event.done:>6,} rows {event.seconds:>7.1f} s")
                if self._store and event.ref.kind == "bands":
                    for line in band_bars(self._store.read(event.ref, ["band"])):
                        self.console.print(f"    {line}", markup=False, soft_wrap=True)
            case "reused" if (
                event.ref not in self._seen | self.to_make
            ):  # otherwise the process that made it prints its line
                self._line("dim", event, "reused")
        self._seen.add(event.ref)

    def _print_progress(self, event: Event) -> None:
        """Print every step of a training. In a pipe also print other progress, at most every PIPED_SECONDS."""
        now, done = time.monotonic(), f"{event.done:,} of {event.total:,}"
        if event.unit == "steps":
            self._step[event.ref] = event
            words = f"step {done} · {event.detail}"
        elif self.console.is_terminal or now - self._printed.get(event.ref, 0.0) < PIPED_SECONDS:
            return
        else:
            words = " · ".join(filter(None, (f"{done} {event.unit}", event.detail)))
            if last := self._step.get(event.ref):
                ended = last.done >= last.total
                words = f"evaluation · {words}" if ended else f"step {last.done + 1:,} of {last.total:,} · {words}"
            elif event.ref.kind == "training":
                words = f"before step 1 · {words}"
        self._printed[event.ref] = now
        self.console.print(f"  {event.title}: {words}", markup=False, soft_wrap=True)

    def _line(self, colour: str, event: Event, what: str) -> None:
        self.console.print(f"  [{colour}]{event.title:<34} {what:<28}[/] [dim]{event.ref}[/]", soft_wrap=True)


@contextmanager
def opened(root: Path, places: dict[str, Path]) -> Iterator[Store]:
    """Yield the store at `root`, in a session that can call stages. Engines are closed at the end."""
    store = Store(root)
    store.prepare()
    with Watch(apart=True) as watch, stages_on(store, watch.on_progress, places=places):
        yield store


def show_start(watch: Watch, name: str, planned: Sequence[Planned]) -> None:
    watch.to_make = {p.step.ref for p in planned if p.made_here}
    todo, reused, left = (sum(getattr(p, how) for p in planned) for how in ("made_here", "reused", "left"))
    if not (todo or left):
        watch.console.print(f"[bold]{name}[/]: nothing to make, all {reused} stages are reused")
        return
    elsewhere = f", {left} left for another machine" * bool(left)
    watch.console.print(f"[bold]{name}[/]: {len(planned)} stages, {todo} to make, {reused} to reuse{elsewhere}")


def show_result(watch: Watch, name: str, store: Store, report: Ref, stages: int, seconds: float, as_json: bool) -> None:
    """Print question, answer and summary table of the study, and how to read the report and compare it."""
    summary, page = store.read(report).to_pylist(), store.files(report) / "report.html"
    if as_json:
        result = {"profile": name, "report": str(report), "html": str(page), "made": watch.made, "stages": stages}
        options.write_json(result | {"seconds": round(seconds, 2), "summary": summary})
        return
    first = first_screen(store.root, str(report))
    watch.console.print(f"\n{question_of(store.root, str(report))}", markup=False)
    watch.console.print(first["verdict"], style="bold", markup=False)
    watch.console.print(" ".join(filter(None, (first["holds"], first["audit"]))), markup=False)
    for line in level_lines(store, report):
        watch.console.print(line, markup=False)
    watch.console.print(f"[bold]{watch.made}[/] of {stages} stages made in {seconds:.1f} s")
    watch.console.print(f"report: {page}; its numbers: varband report {report} --query summary", soft_wrap=True)


#: Number of columns of a terminal that 100 % takes.
ACROSS = 33


def level_lines(store: Store, report: Ref) -> Iterator[str]:
    """Yield a line for each arm (or objective, or method): accuracy before (o) and after (●), between 0 and 100 %. For
    a question about width, show the widths between 0 and the largest."""
    figure = answering(store.root, str(report))
    if (chart := figure.chart) is None:
        return
    rows = ask(store.root, str(report), figure.query).to_pylist()
    rows = [row for row in rows if row["row"] == "level" and row[chart.x] is not None]
    shares, before = is_share(chart.x), chart.x.replace("after_", "before_")
    width = min(24, max((len(row["label"]) for row in rows), default=0))
    whole = 1.0 if shares else max((row[chart.x] for row in rows), default=0.0) or 1.0
    for row in rows:
        marks, start, end = ["·"] * ACROSS, row[before], row[chart.x]
        ends = sorted(round((ACROSS - 1) * value / whole) for value in (end, end if start is None else start))
        marks[ends[0] : ends[1] + 1] = "─" * (ends[1] - ends[0] + 1)
        if start is not None:
            marks[round((ACROSS - 1) * start / whole)] = "o"
        marks[round((ACROSS - 1) * end / whole)] = "●"
        value = f"{100 * end:5.1f} %" if shares else f"{end:5.3f}"
        gained = "" if row[chart.y] is None else f"{100 * row[chart.y]:+7.2f} points"
        yield f"{row['label'][:width]:{max(16, width)}} {''.join(marks)} {value} {gained}".rstrip()


def band_bars(bands: pa.Table) -> Iterator[str]:
    """Yield a bar with the number of problems for each band."""
    counted = query("select band, count(*) as n from bands group by all", bands=bands).to_pylist()
    counts = {row["band"]: row["n"] for row in counted}
    for band in Band:
        n, gives = counts.get(band, 0), "  a gradient: right and wrong" if band == Band.VARIANCE else ""
        yield f"{band:<9} {'█' * round(WIDTH * n / max(1, bands.num_rows)):<{WIDTH}} {n:>5}{gives}"


def show_plan(priced: Forecast, *, stages: bool) -> None:
    """Print the sentences of a plan. stages: first print its table, where names may be wrapped, but never numbers."""
    console, table = Console(highlight=False), Table("", box=None, pad_edge=False)
    table.add_column("stage", overflow="fold")
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for p, c in zip(priced.planned, priced.costs, strict=True):
        mark = "·" if p.reused else "left" if p.left else "+"
        table.add_row(mark, p.step.title, *amounts(c), style="" if p.made_here else "dim")
    table.add_row("", "[bold]total[/]", *amounts(priced.whole))
    if stages:
        console.print(table)
    for sentence in priced.sentences():
        console.print(sentence, markup=False, soft_wrap=True)
