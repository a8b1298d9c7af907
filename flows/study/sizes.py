"""The number of problems of a pool that is not built yet: those of its files, and of named sets that are not on this
machine as many as were published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tasks.domain.problems.arithmetic import demo_problems
from tasks.domain.problems.problems import PoolPolicy, problem_id
from tasks.domain.problems.sources import SOURCES, SourceSpec
from tasks.engines.problems.problem_files import Row, load_problems

#: Of difficulty, in sets that have any; taken to be equally many problems each where the file is not here.
LEVELS = 5


def problems_before_checks(given: Mapping[str, Any], places: Mapping[str, Path]) -> Sequence[Row] | None:
    """Return the problems of a pool that is not built yet, before golds are checked; None if one of its files is
    elsewhere. given: the arguments of the stage that builds it."""
    if "per_source" in given:
        return demo_problems(given["per_source"], given["seed"], given["levels"])
    sources: Sequence[SourceSpec] = given["sources"]
    if any(spec.sha256 not in places for spec in sources):
        return None
    return _drawn(tuple((spec, places[spec.sha256]) for spec in sources), given["policy"])


@lru_cache(maxsize=16)
def _drawn(files: tuple[tuple[SourceSpec, Path], ...], policy: PoolPolicy) -> Sequence[Row]:
    once: dict[str, Row] = {}
    for row in load_problems((path, spec.name, spec.only) for spec, path in files):
        once.setdefault(problem_id(row["problem"]), row)
    return policy.drawn([*once.values()])[: policy.limit]


def counts_by_source(given: Mapping[str, Any], places: Mapping[str, Path]) -> Counter[str]:
    """Return the number of problems of each source of a pool that is not built yet. given: as above. Of a pool with a
    set that is not here a limit takes from each source in proportion."""
    rows = problems_before_checks(given, places)
    if rows is not None:
        return Counter(row["source"] for row in rows)
    counts = Counter({spec.name: size_of_levels([spec], places, (), None) for spec in given["sources"]})
    share = min(1.0, (given["policy"].limit or counts.total()) / max(1, counts.total()))
    return Counter({name: round(share * n) for name, n in counts.items()})


def size_of_levels(
    specs: Sequence[SourceSpec], places: Mapping[str, Path], levels: Sequence[str], per_level: int | None
) -> int:
    """Return the number of problems of these levels. levels: empty for all. per_level: at most so many of each; None:
    all. A set that is neither here nor known counts 0, and a plan says so."""
    if any(spec.sha256 not in places for spec in specs):
        published = sum(SOURCES[spec.name].problems for spec in specs if spec.name in SOURCES)
        wanted = len(levels) or LEVELS
        whole = round(published * wanted / LEVELS)
        return whole if per_level is None else min(whole, per_level * wanted)
    rows = load_problems((places[spec.sha256], spec.name, spec.only) for spec in specs)
    each = Counter(row["level"] for row in rows if not levels or row["level"] in levels)
    return sum(min(n, per_level or n) for n in each.values())
