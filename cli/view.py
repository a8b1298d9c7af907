"""What a terminal shows of a plan, of a run at work (a line a stage, bands, one trace) and of its result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from cli import options
from flows.running.forecast import UNITS, Forecast, amounts
from flows.running.plan import Planned
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.rules import Band
from storage.sql import query
from tasks.stage import Progress as Event

#: Who reads a pipe is told so often how far a stage is.
PIPED_SECONDS = 10.0
#: Characters of a full bar of a band, and of a problem or trace that is shown.
WIDTH, SHOWN = 30, 240


class Watch:
    """Follows one run. On a terminal: a live line for the stage at work; piped: one line per finished stage, and for a
    long one now and then how far it is."""

    def __init__(self, profile: str, planned: Sequence[Planned], *, as_json: bool, store: Store | None = None) -> None:
        """store: of which a person is shown something while it fills."""
        self.profile, self.planned, self.as_json, self._store = profile, planned, as_json, store
        self.console = Console(stderr=as_json, highlight=False)
        self._began = time.monotonic()
        self._seen: set[Ref] = set()
        self._made = 0
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TextColumn("[cyan]{task.fields[detail]}"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self._bar: dict[Ref, TaskID] = {}
        self._told: dict[Ref, float] = {}
        self._live = Live(console=self.console, transient=True, get_renderable=lambda: self._bars)

    def __enter__(self) -> Watch:
        todo, reused, left = (sum(getattr(p, how) for p in self.planned) for how in ("made_here", "reused", "left"))
        self.console.print(
            f"[bold]{self.profile}[/]: {len(self.planned)} stages, {todo} to make, {reused} to reuse"
            + f", {left} left for another machine" * bool(left)
        )
        if any(p.step.ref.kind == "rollouts" and p.made_here for p in self.planned):
            self.console.print("  before the first rollout the engine loads the model")
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def on_progress(self, event: Event) -> None:
        match event.event:
            case "started":
                self._bar[event.ref] = self._bars.add_task(event.title, total=None, unit="", detail="")
            case "advanced" if event.ref in self._bar:
                self._bars.update(
                    self._bar[event.ref], completed=event.done, total=event.total, unit=event.unit, detail=event.detail
                )
                self._advance(event)
            case "noted":
                self.console.print(f"  {event.title}: {event.detail}", soft_wrap=True)
            case "made":
                if event.ref in self._bar:
                    self._bars.remove_task(self._bar.pop(event.ref))
                self._made += 1
                self._line(event, f"made {event.done:>6,} rows {event.seconds:>7.1f} s")
                self._glimpse(event)
            case "reused" if event.ref not in self._seen:
                self._line(event, "reused")
        self._seen.add(event.ref)

    def _advance(self, event: Event) -> None:
        """In a pipe, how far it is, in a line."""
        if self.console.is_terminal or time.monotonic() - self._told.get(event.ref, 0.0) < PIPED_SECONDS:
            return
        self._told[event.ref] = time.monotonic()
        self.console.print(f"  {event.title}: {event.done:,} of {event.total:,} {event.unit}", soft_wrap=True)

    def _glimpse(self, event: Event) -> None:
        """Of a pool a problem; of bands all; of a screening one trace."""
        if self._store is not None and (event.ref.kind in ("pool", "bands") or event.title.startswith("screen ")):
            for line in glimpse(self._store, event.ref):
                self.console.print(f"    {line}", markup=False, soft_wrap=True)

    def _line(self, event: Event, what: str) -> None:
        colour = "green" if what.startswith("made") else "dim"
        self.console.print(f"  [{colour}]{event.title:<34} {what:<28}[/] [dim]{event.ref}[/]", soft_wrap=True)

    def nothing_to_do(self) -> None:
        for p in self.planned:
            self.console.print(f"  [dim]{p.step.title:<34} {'reused':<28} {p.step.ref}[/]")
        self.console.print(f"[bold]{self.profile}[/]: nothing to make, all {len(self.planned)} stages are reused")

    def finish(self, store: Store, report: Ref) -> None:
        """The summary table and the path of the report."""
        seconds = time.monotonic() - self._began
        summary = store.read(report).to_pylist()
        page = store.files(report) / "report.html"
        if self.as_json:
            result = {
                "profile": self.profile,
                "report": str(report),
                "html": str(page),
                "made": self._made,
                "stages": len(self.planned),
                "seconds": round(seconds, 2),
                "summary": summary,
            }
            options.write_json(result)
            return
        if summary:
            self.console.print(_summary(self.profile, summary))
        for sentence in answer_in_words(store.root, report):
            self.console.print(sentence, markup=False)
        self.console.print(f"[bold]{self._made}[/] of {len(self.planned)} stages made in {seconds:.1f} s")
        self.console.print(f"report: {page}", soft_wrap=True)


def _summary(profile: str, rows: list[dict[str, Any]]) -> Table:
    """The report's first table, for 80 columns."""
    trained = any(row["gain"] is not None for row in rows)
    several = len({row["seed"] for row in rows}) > 1
    table = Table(
        title=f"{profile}: held-out pass rate" + " before and after training" * trained,
        caption="tokens: per correct answer",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    arm = "arm, seed" if several else "arm"
    for name in (arm, "in band", "held-out", "gain [95 %]", "diversity", "tokens", "no\nanswer", "no\ntags"):
        table.add_column(name, justify="left" if name == arm else "right", no_wrap=True)
    for r in rows:
        low, high, cost = r["gain_low"], r["gain_high"], r["tokens_per_correct"]
        interval = "" if low is None or high is None else f" \\[{low:.2f}, {high:.2f}]"
        table.add_row(
            f"{r['arm']} {_cell(r['seed'])}" if several else r["arm"],
            f"{r['variance']}/{r['problems']}",
            _change(r["heldout_before"], r["heldout_after"], ".3f"),
            "–" if r["gain"] is None else f"{r['gain']:+.2f}{interval}",
            _change(r["diversity_before"], r["diversity_after"], ".2f"),
            "–" if cost is None else f"{cost:,.0f}",
            *("–" if r[name] is None else f"{r[name]:.0%}" for name in ("no_answer", "invalid_tags")),
        )
    return table


def _change(before: float | None, after: float | None, form: str) -> str:
    """
    >>> _change(0.491, 0.829, ".3f"), _change(None, 1.0, ".2f")
    ('.491→.829', '–→1.00')
    """
    return "→".join("–" if value is None else format(value, form).removeprefix("0") for value in (before, after))


def _cell(value: object) -> str:
    return "–" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


def glimpse(store: Store, ref: Ref) -> Iterator[str]:
    """Lines about an artifact that was just made; none for most."""
    if ref.kind == "bands":
        yield from bands_drawn(bands_of(store, ref))
    elif ref.kind == "pool":
        for row in query(
            "select problem, gold from pool limit 1", pool=store.read(ref, ["problem", "gold"])
        ).to_pylist():
            yield f"the first of them: {' '.join(row['problem'].split())[:SHOWN]}  → {row['gold']}"
    elif ref.kind == "rollouts":
        wanted = "select * from rows order by not correct limit 1"
        rows = store.read(ref, ["arm", "step", "adapter", "completion", "verdict", "correct"])
        yield from filter(None, [first_trace(query(wanted, rows=rows).to_pylist())])


def first_trace(rows: Sequence[Mapping[str, object]]) -> str:
    """The first rollout that was solved, else the first, in one line; nothing of none.

    >>> row = {"arm": "panel", "completion": "so  7", "verdict": "wrong", "correct": False}
    >>> first_trace([row, row | {"completion": "8", "verdict": "correct", "correct": True}])
    'panel: 8  → correct'
    >>> first_trace([row]), first_trace([])
    ('panel: so 7  → wrong', '')
    """
    if not rows:
        return ""
    row = next((row for row in rows if row["correct"]), rows[0])
    said = " ".join(str(row["completion"]).split())
    return f"{row['arm']}: {said[:SHOWN]}{'…' if len(said) > SHOWN else ''}  → {row['verdict']}"


def bands_of(store: Store, ref: Ref) -> list[int]:
    """How many problems of each band there are, as Band lists them."""
    counted = query("select band, count(*) as n from bands group by all", bands=store.read(ref, ["band"])).to_pylist()
    return [sum(row["n"] for row in counted if row["band"] == band) for band in Band]


def bands_drawn(counts: Sequence[int]) -> Iterator[str]:
    """A line for each band, of how many problems it has."""
    whole = sum(counts)
    for band, n in zip(Band, counts, strict=True):
        gives = "  a gradient: right and wrong" if band == Band.VARIANCE else ""
        yield f"{band:<9} {'█' * round(WIDTH * n / max(1, whole)):<{WIDTH}} {n:>5}{gives}"


def answer_in_words(root: Path, report: Ref) -> list[str]:
    """The report's own sentences, and what to know before believing them."""
    from storage.reading.query_cache import ask
    from tasks.report.findings import answer, caveats

    asked = partial(ask, root, str(report))
    return [*answer(asked), *caveats(asked)]


def show_plan(priced: Forecast) -> None:
    """Print a plan's table and its sentences. Names of stages are folded where there is no room; numbers never are."""
    console, table = Console(highlight=False), Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("stage", overflow="fold")
    for name in UNITS:
        table.add_column(name, justify="right", no_wrap=True)
    for p, c in zip(priced.planned, priced.costs, strict=True):
        mark = "·" if p.reused else "left" if p.left else "+"
        table.add_row(mark, p.step.title, *amounts(c), style="" if p.made_here else "dim")
    table.add_row("", "[bold]total[/]", *amounts(priced.whole))
    console.print(table)
    for sentence in priced.sentences():
        console.print(sentence, markup=False, soft_wrap=True)
