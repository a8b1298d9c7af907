"""Replay: import the published study's files as artifacts, run every stage they allow, and return the result as one
object with a key per stage (printed by `replay --json`)."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from flows.running.sessions import Listener, stages_on, unheard
from storage.artifacts.fingerprint import file_digest
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.records.notes import note_planned
from storage.rules import Band
from storage.sql import named, query
from tasks.measures.bands import cross_bands
from tasks.measures.diversity import compare_diversity
from tasks.measures.pass_at_k import compare_solved, contrast_pass_at_k, estimate_pass_at_k
from tasks.published.checks import VARIANTS, window_of
from tasks.published.designs import EVALUATIONS
from tasks.published.importing import (
    PublishedFile,
    PublishedFolder,
    audit_published,
    check_tokens,
    import_bands,
    import_designs,
    import_diversity,
    import_groups,
    import_pool,
    import_pools,
    import_series,
    import_splits,
    import_trajectory,
)

POOL_FILES = ("heldout_eval", "panel_train", "thinking_train", "heldout_aux")
#: slice → (evaluation folders of panel and thinking, largest k of the write-up)
SLICES = {
    "math500_stratified": ("eval_math500_vibecheck/math_final_panel", "eval_math500_vibecheck/thinking_native", 4),
    "math500_l5": ("eval_math500_vibecheck/panel_l5_full", "eval_math500_vibecheck/thinking_l5_full", 4),
    "aime": ("eval_aime_vibecheck/aime_panel_postmath_n16", "eval_aime_vibecheck/aime_thinking_n16", 16),
}
TRAIN_GROUP_SIZE = 16
NEEDED = (
    "data/multipersona_gsm8k/manifest.json",
    *(f"data/olympiad_pool/{name}.jsonl" for name in POOL_FILES),
    *(f"reports/variance_band/{arm}_g8/per_problem.jsonl" for arm in ("panel", "thinking")),
    *(f"reports/{folder}/per_problem.jsonl" for folder in VARIANTS),
    *(f"reports/{folder}/summary.json" for folder in (*VARIANTS, *EVALUATIONS, "token_efficiency")),
    *(f"reports/olympiad_panel_only/{n}.jsonl" for n in ("heldout_trajectory", "train_per_batch", "diversity_proxy")),
)
#: Refs by what they answer; slices and diversity folders have one each.
Replayed = dict[str, Any]
Row = dict[str, Any]


def replay(folder: Path, store: Store, listener: Listener = unheard) -> Replayed:
    """Import and analyse. Raise UserError if the folder is not the published one or a file is missing or damaged."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give the one that holds the published data/ and reports/")
    missing = [name for name in NEEDED if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"{folder}: {len(missing)} of {len(NEEDED)} published files are missing, first {missing[0]};"
            " give the folder that holds data/ and reports/"
        )
    store.prepare()
    files = {name: PublishedFile(name, file_digest(folder / name)) for name in NEEDED}
    whole = _digest(folder)
    places = {f.sha256: folder / name for name, f in files.items()} | {whole.sha256: folder}
    with stages_on(store, listener, places=places) as current:
        replayed = _dag(folder, files, whole)
    note_planned(store.root, "published", (step.ref for step in current.steps))
    return replayed


def _digest(folder: Path) -> PublishedFolder:
    lines = [f"{p.relative_to(folder).as_posix()}:{file_digest(p)}" for p in sorted(folder.rglob("*.json*"))]
    return PublishedFolder(hashlib.sha256("\n".join(lines).encode()).hexdigest())


def _dag(folder: Path, files: dict[str, PublishedFile], whole: PublishedFolder) -> Replayed:
    pool_files = tuple(files[f"data/olympiad_pool/{name}.jsonl"] for name in POOL_FILES)
    bands = tuple(
        import_bands(file=files[f"reports/variance_band/{arm}_g8/per_problem.jsonl"], arm=arm)
        for arm in ("panel", "thinking")
    )
    pool, splits = import_pool(files=pool_files), import_splits(heldout=pool_files[0], others=pool_files[1:])
    pools, designs = import_pools(files=pool_files), import_designs(folder=whole)
    diversities = {
        name: tuple(
            import_diversity(
                file=files[f"reports/{name}/per_problem.jsonl"], label=label, arm=arm, window=window_of(folder, name)
            )
            for label, arm in variants.items()
        )
        for name, (_, variants) in VARIANTS.items()
    }
    groups = {
        name: import_groups(file=files[f"reports/{name}/summary.json"], arm=arm)
        for name, (arm, _) in EVALUATIONS.items()
    }
    pairs = {name: (groups[a], groups[b]) for name, (a, b, _) in SLICES.items()}
    run = "reports/olympiad_panel_only"
    audit = audit_published(
        folder=whole,
        designs=designs,
        pool=pool,
        splits=splits,
        pools=pools,
        bands=bands,
        diversities=tuple(r for refs in diversities.values() for r in refs),
        evaluations=tuple(groups.values()),
        train_group_size=TRAIN_GROUP_SIZE,
    )
    ks = {name: tuple(range(1, k + 1)) for name, (_, _, k) in SLICES.items()}
    return {
        "bands": bands,
        "crosstab": cross_bands(bands=bands, train_group_size=TRAIN_GROUP_SIZE),
        "splits": splits,
        "pools": pools,
        "curves": import_trajectory(trajectory=files[f"{run}/heldout_trajectory.jsonl"], pools=pools),
        "series": import_series(
            steps=files[f"{run}/train_per_batch.jsonl"], spread=files[f"{run}/diversity_proxy.jsonl"]
        ),
        "tokens": check_tokens(
            tokens=files["reports/token_efficiency/summary.json"], math=pairs["math500_l5"], aime=pairs["aime"]
        ),
        "designs": designs,
        "audit": audit,
        "diversities": diversities,
        "comparisons": {name: compare_diversity(diversities=refs) for name, refs in diversities.items()},
        "passk": {name: estimate_pass_at_k(rollouts=refs, ks=ks[name]) for name, refs in pairs.items()},
        "contrasts": {name: contrast_pass_at_k(rollouts=refs, ks=ks[name]) for name, refs in pairs.items()},
        "solved_by": {name: compare_solved(rollouts=refs) for name, refs in pairs.items()},
    }


def summary(store: Store, r: Replayed) -> Row:
    """Return the figures of a replay as one object. Keys: bands, crosstab, splits, diversity, passk, solved_by,
    trajectory, training, token_efficiency, reference, audit, provenance, refs."""
    read = store.read
    bands, crosstab, pools = pa.concat_tables([read(b) for b in r["bands"]]), read(r["crosstab"]), read(r["pools"])
    series: dict[str, list[Row]] = defaultdict(list)
    for row in query("from t order by metric, step", t=read(r["series"])).to_pylist():
        series[row["metric"]].append({"step": row["step"], "value": row["value"]})
    return {
        "provenance": "imported",
        "bands": _bands(crosstab.to_pylist()),
        "crosstab": _crosstab(crosstab.to_pylist()),
        "splits": _splits(pools, bands),
        "diversity": {name: _diversity(read(ref)) for name, ref in r["comparisons"].items()},
        "passk": {name: _passk(read(r["passk"][name]), read(r["contrasts"][name])) for name in r["passk"]},
        "solved_by": {name: _solved_by(read(ref).to_pylist()) for name, ref in r["solved_by"].items()},
        "trajectory": _trajectory(read(r["curves"]).to_pylist()),
        "training": series,
        "token_efficiency": _tokens(store, r),
        "reference": query(named("replay_reference"), bands=bands, pools=pools).to_pylist(),
        "audit": read(r["audit"]).to_pylist(),
        "refs": orjson.loads(orjson.dumps(r, str, orjson.OPT_PASSTHROUGH_DATACLASS)),
    }


def _bands(rows: list[Row]) -> Row:
    found: Row = {}
    for row in (r for r in rows if r["metric"] == "count"):
        arm = found.setdefault(row["arm"], {"by_source": {}})
        place = arm if row["source"] == "all" else arm["by_source"].setdefault(row["source"], {})
        place[row["band"]], place["n"] = row["count"], row["n"]
    ratio = next(r for r in rows if r["metric"] == "ratio")
    ends = {f"ratio_{end}": ratio[end] for end in ("low", "high")}
    return found | {"ratio": ratio["estimate"], **ends, "ratio_of": [ratio["arm"], ratio["other"]]}


def _crosstab(rows: list[Row]) -> Row:
    """Rows of the table are the panel arm's bands, columns the thinking arm's. measures: all rows of the crosstab."""
    cells = {(r["band"], r["other_band"]): r["count"] for r in rows if r["metric"] == "cell"}
    table = [[cells[(a, b)] for b in Band] for a in Band]
    row_totals, column_totals = [sum(row) for row in table], [sum(c) for c in zip(*table, strict=True)]
    return {
        "table": table,
        "row_totals": row_totals,
        "column_totals": column_totals,
        "n": sum(row_totals),
        "shared_variance": table[1][1],
        "union_variance": row_totals[1] + column_totals[1] - table[1][1],
        "mcnemar": next(r for r in rows if r["metric"] == "mcnemar" and r["source"] == "all"),
        "measures": rows,
    }


def _splits(pools: pa.Table, bands: pa.Table) -> Row:
    counts = query(
        "select pool, source, count(*) as n from pools group by pool, source order by pool, source", pools=pools
    )
    found: Row = {}
    for row in counts.to_pylist():
        one = found.setdefault(row["pool"], {"n": 0, "by_source": {}})
        one["by_source"][row["source"]] = row["n"]
        one["n"] += row["n"]
    return found | {"checks": query(named("replay_splits"), pools=pools, bands=bands).to_pylist()[0]}


def _diversity(comparison: pa.Table) -> list[Row]:
    """Every pair of variants on all of their problems. uncorrected: p values of other tests of the seeds' means,
    including Student's t and the published normal test."""
    return query(
        """
        select "window", arm, other, n, mean, other_mean, difference, relative, t, p_value, p_adjusted, family,
               struct_pack(p_t, p_normal) as uncorrected, d_z, low, high,
               adjusted_difference, adjusted_low, adjusted_high, adjusted_p, adjusted_p_corrected
        from t where metric = 'diversity' and basis = 'all' order by arm, other
        """,
        t=comparison,
    ).to_pylist()


def _passk(passk: pa.Table, contrasts: pa.Table) -> Row:
    """contrasts: every gap, and how the gaps close, over all sources."""
    curves: dict[str, list[Row]] = defaultdict(list)
    for r in passk.to_pylist():
        if r["metric"] == "pass@k" and r["source"] == "all":
            curves[r["arm"]].append(r)
    mine = [r for r in contrasts.to_pylist() if r["source"] == "all"]
    gaps, one = [r["estimate"] for r in mine if r["metric"] == "gap"], {r["metric"]: r for r in mine}
    return {
        "curves": curves,
        "gap_first_pp": 100 * gaps[0],
        "gap_last_pp": 100 * gaps[-1],
        "closure_pp": 100 * one["closure"]["estimate"],
        **{metric: one[metric] for metric in ("closure", "closure_of_shift", "closure_beyond_shift")},
        "monotone": one["monotone"]["reason"] == "narrows at every k",
        "contrasts": mine,
    }


def _solved_by(rows: list[Row]) -> Row:
    """problems: how often each arm solved each, and the probability at equal numbers of rollouts."""
    counts = Counter(r["solved_by"] for r in rows)
    return {
        "counts": {name: counts[name] for name in ("both", "arm_only", "other_only", "neither")},
        "strict_subset": not counts["arm_only"] and counts["other_only"] > 0,
        "equal_n": all(r["equal_n"] for r in rows),
        "expected_solved_at_equal_n": {who: sum(r[f"chance_of_{who}"] for r in rows) for who in ("arm", "other")},
        "problems": rows,
    }


def _trajectory(rows: list[Row]) -> Row:
    points: dict[int, Row] = {}
    for r in (r for r in rows if r["series"] == "heldout"):
        point = points.setdefault(r["step"], {"step": r["step"], "by_source": {}})
        place = point if r["source"] == "all" else point["by_source"].setdefault(r["source"], {})
        place.update({k: r[k] for k in ("estimate", "low", "high", "n")})
    ordered = [points[step] for step in sorted(points)]
    return {
        "points": ordered,
        "first": ordered[0]["estimate"],
        "last": ordered[-1]["estimate"],
        "last_step": ordered[-1]["step"],
        "gains": {r["source"]: r for r in rows if r["series"] == "gain"},
    }


def _tokens(store: Store, r: Replayed) -> Row:
    """Consistency of the printed table, and the part of it that can be recomputed from per-problem lengths."""
    rows = store.read(r["tokens"]).to_pylist()
    lengths = {name: pa.concat_tables([store.read(d) for d in refs]) for name, refs in r["diversities"].items()}
    return {
        "recomputable": False,
        "reason": "the paired rollouts were not published; the printed table is checked against itself",
        "consistent": all(row["holds"] for row in rows if not row["detail"]),
        "checks": rows,
        "recomputed_per_correct": {
            name: query(named("replay_tokens_per_correct"), lengths=table).to_pylist()
            for name, table in lengths.items()
            if not name.endswith("longhead")
        },
    }
