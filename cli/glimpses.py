"""What a person sees of a run while it goes on: bands as they are known, a first trace; at the end the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.rules import Band
from storage.sql import query
from tasks.rollouts import SHOWN, first_trace

WIDTH = 30


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
