"""Whether the problems that a study wishes for leave some to train on and some to hold out, as far as that can be said
before its pool is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from flows.study.hub import on_hub
from flows.study.profile import Profile
from flows.study.sizes import size_of
from storage.errors import UserError
from tasks.domain.problems.sources import FORMATS, SOURCES, SourceSpec
from tasks.engines.problems.problem_files import load_problems


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
