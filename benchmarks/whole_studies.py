"""Whole simulated studies for benchmarks/coverage.py: how often like arms are called different, and whether a study finds
what `power` promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.simulated import KS, Cell, G, groups_of, shift_by
from storage.sql import query
from tasks.domain.statistics.power import Design, simulate
from tasks.measures.gains import gains_of
from tasks.measures.pass_at_k import contrasts_of
from tasks.measures.trajectories import gain_rows

Row = dict[str, Any]


def whole_studies(trials: int) -> Iterator[Row]:
    """One row a design."""
    for n, seeds, sd in ((100, 1, 0.0), (100, 3, 3.0), (300, 3, 1.0)):
        yield family_wise(n, seeds, sd, 2 * trials)
    for n, seeds, sd, effect in ((100, 1, 0.0, 0.05), (300, 1, 0.0, 0.05), (100, 3, 1.0, 0.05), (100, 5, 3.0, 0.1)):
        yield promised(n, seeds, sd, effect, 4 * trials)


def family_wise(n: int, seeds: int, sd_pp: float, trials: int) -> Row:
    """Whole studies of two arms that are alike and learn nothing: how often any confirmatory p, and any p of another
    family after its correction, is below .05."""
    cell = Cell("ordinary", n, seeds, sd_pp)
    confirmed, explored, raw = [], [], []
    for trial in range(trials):
        groups = groups_of(cell, 1, 1000 + trial)
        half = pa.array([f"s{i % 3}" for i in range(n)] * (groups.num_rows // n), pa.string())
        groups = groups.set_column(groups.schema.get_field_index("source"), "source", half)
        after = query("from groups where step = 1", groups=groups)
        main = gains_of(groups).to_pylist()
        rest = [*gain_rows(groups), *contrasts_of(after, KS, 50, 0).to_pylist()]
        mine = [r for r in main if r["source"] == "all"]
        rest += [r for r in main if r["source"] != "all"]
        below = lambda rows, p: any(r.get(p) is not None and r[p] < 0.05 for r in rows)  # noqa: E731
        confirmed.append(below(mine, "p_adjusted"))
        explored.append(below(rest, "p_adjusted"))
        raw.append(below(rest, "p_value"))
    return {
        "study": f"n = {n}, {seeds} seed{'s' if seeds > 1 else ''}, SD {sd_pp:g}",
        "trials": trials,
        "confirmatory": float(np.mean(confirmed)),
        "exploratory": float(np.mean(explored)),
        "uncorrected": float(np.mean(raw)),
    }


def promised(n: int, seeds: int, sd_pp: float, effect: float, trials: int) -> Row:
    """Power of the difference of gains: as found in simulated studies through the tables, beside what `power` says."""
    cell = Cell("ordinary", n, seeds, sd_pp, shift=shift_by(effect))
    rows = [r for r in gains_of(groups_of(cell, trials, 5)).to_pylist() if r["source"] != "all"]
    design = Design(
        num_problems=n, group_size=G, question="gains", seeds=seeds, seed_sd=sd_pp / 100, heterogeneity=cell.own
    )
    return {
        "study": f"n = {n}, {seeds} seed{'s' if seeds > 1 else ''}, SD {sd_pp:g}, {100 * effect:+.0f} pp",
        "trials": trials,
        "found": float(np.mean([r["p_value"] < 0.05 for r in rows])),
        "promised": simulate(effect, design, trials=4 * trials).power,
    }


def written(rows: list[Row]) -> str:
    """Two tables: what whole studies of like arms say, and power as found and as promised."""
    out = []
    for names in (("confirmatory", "exploratory", "uncorrected"), ("found", "promised")):
        mine = [r for r in rows if names[0] in r]
        out += [f"\n| study | studies | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
        out += [
            f"| {r['study']} | {r['trials']} | {' | '.join(f'{100 * r[name]:.1f}' for name in names)} |" for r in mine
        ]
    return "\n".join(out)
