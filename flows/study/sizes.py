"""How many problems a pool will have that is not built yet, and whether some of them are left to train on.

Lines of its files count, and of named sets that are not on this machine what they have as published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from flows.study.hub import on_hub
from flows.study.profile import Profile
from storage.errors import UserError
from tasks.domain.problems.arithmetic import demo_problems
from tasks.domain.problems.problems import PoolPolicy, problem_id
from tasks.domain.problems.sources import FORMATS, SOURCES, SourceSpec
from tasks.engines.problems.problem_files import Row, load_problems, number_of_problems

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
    """Return the number of problems of each source of a pool that is not built yet. given: as above. Sets that are not
    here count as published, and a limit takes from each in proportion."""
    rows = problems_before_checks(given, places)
    if rows is not None:
        return Counter(row["source"] for row in rows)
    counts = Counter({spec.name: size_of([spec], places) for spec in given["sources"]})
    share = min(1.0, (given["policy"].limit or counts.total()) / max(1, counts.total()))
    return Counter({name: round(share * n) for name, n in counts.items()})


def size_of(specs: Sequence[SourceSpec], places: Mapping[str, Path]) -> int:
    """A file that holds several sets is as long as all of them; of a set that is neither here nor known nothing can
    be said, and a plan says so."""
    whole = (s.sha256 in places and s.only is None for s in specs)
    return sum(
        number_of_problems(places[s.sha256]) if here else SOURCES[s.name].problems if s.name in SOURCES else 0
        for s, here in zip(specs, whole, strict=True)
    )


def size_of_levels(
    specs: Sequence[SourceSpec], places: Mapping[str, Path], levels: Sequence[str], per_level: int | None
) -> int:
    """levels: of which problems are asked; empty: all. per_level: at most so many of each; null: all."""
    if any(spec.sha256 not in places for spec in specs):
        asked = len(levels) or LEVELS
        whole = round(size_of(specs, places) * asked / LEVELS)
        return whole if per_level is None else min(whole, per_level * asked)
    rows = load_problems((places[spec.sha256], spec.name, spec.only) for spec in specs)
    each = Counter(row["level"] for row in rows if not levels or row["level"] in levels)
    return sum(min(n, per_level or n) for n in each.values())


def refuse_undrawable(p: Profile, specs: Sequence[SourceSpec], places: Mapping[str, Path]) -> None:
    """specs: of the study's pool, none of made-up problems. Problems that nobody can count yet are not judged: the
    split counts them before anything is sampled.

    Errors: UserError where no split can be drawn, and for a file that is so short because something is wrong with it.
    """
    held = p.pool.heldout_per_source
    reserved = len(specs) > 1 and any(s.name in SOURCES and SOURCES[s.name].eval_only for s in specs)
    if not held and not reserved:
        raise UserError(
            "heldout_per_source is 0: nothing is held out, and figures are of held-out problems; hold some out"
        )
    if not specs or reserved or any(s.sha256 not in places and s.name not in SOURCES for s in specs):
        return
    size = size_of(specs, places)
    if (number := min(size, p.pool.limit or size)) > held:
        return
    if size <= held:
        load_problems((places[s.sha256], s.name, s.only) for s in specs if s.sha256 in places)
    raise UserError(
        f"{held} problems a source would be held out of {number} in all, which leaves none to train on; hold out fewer"
        " (pool.heldout_per_source), or take more"
    )


def refuse_one_name(wishes: Sequence[str | Path]) -> None:
    """Errors: UserError for two files that would be one source, of which a split holds out as much as of one."""
    names = [Path(wish).stem for wish in wishes if Path(wish).suffix.lower() in FORMATS and not on_hub(str(wish))]
    if name := next((name for name in names if names.count(name) > 1), None):
        raise UserError(
            f"several files are called {name}, and would be held out and counted as one: rename one, or join them"
        )
