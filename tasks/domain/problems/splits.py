"""Held-out problems of a split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

import pyarrow as pa

from tasks.domain.problems.sources import SOURCES

#: How many problems of a source are held out, if it is no number.
HeldOut = Literal["all"]


def reserved_sources(counts: Mapping[str, int]) -> set[str]:
    """Return the sources that are held out entirely: evaluation-only sources in a pool with others."""
    return {name for name in counts if len(counts) > 1 and name in SOURCES and SOURCES[name].eval_only}


def heldout_of(counts: Mapping[str, int], heldout_per_source: int | HeldOut) -> Counter[str]:
    """Return how many problems of each source a split holds out. counts: problems by source.

    >>> heldout_of({"math500": 500, "amc": 83, "aime24": 30}, 50)
    Counter({'math500': 500, 'amc': 50, 'aime24': 30})
    """
    if heldout_per_source == "all":
        return Counter(counts)
    reserved = reserved_sources(counts)
    return Counter({name: n if name in reserved else min(n, heldout_per_source) for name, n in counts.items()})


def of_split(problems: pa.Table, splits: pa.Table, split: str | None) -> pa.Table:
    """Return the problems of one split, in the pool's order; all for None."""
    if split is None:
        return problems
    chosen = {row["problem_id"] for row in splits.to_pylist() if row["split"] == split}
    return problems.filter(pa.array([p in chosen for p in problems["problem_id"].to_pylist()], pa.bool_()))
