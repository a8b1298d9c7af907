"""Stages that import the published study: each makes an artifact of a kind that the other stages read.

Provenance: imported. A recipe holds the digests of the files, so a changed file is another artifact.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from storage.artifacts.fingerprint import restored
from storage.artifacts.kinds import (
    Audit,
    Bands,
    Curves,
    Designs,
    Diversity,
    Groups,
    Pool,
    Splits,
    TokenChecks,
    TrainingPools,
    TrainingSeries,
)
from storage.sql import query
from tasks.designs import findings_of, leak_rows, mislabelled_rows, rows_as
from tasks.published import checks
from tasks.published import designs as published_designs
from tasks.published import files as published
from tasks.published.unpaired import trajectory_rows
from tasks.stage import Payload, Ref, stage, store, toolbox

IMPORTED = {"provenance": "imported"}
DRAWS = 10_000


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file by content; `path` is below the published folder."""

    path: str
    sha256: str

    def here(self) -> Path:
        return toolbox().place(self.sha256, f"the published file {self.path}")


@dataclass(frozen=True, slots=True)
class PublishedFolder:
    """The whole published folder by content: a digest over all of its files."""

    sha256: str

    def here(self) -> Path:
        return toolbox().place(self.sha256, "the published folder")


@stage(Bands, version=1)
def import_bands(*, file: PublishedFile, arm: str) -> Payload:
    return Payload(published.bands(file.here(), arm), notes=IMPORTED)


@stage(Groups, version=1)
def import_groups(*, file: PublishedFile, arm: str) -> Payload:
    return Payload(published.groups(file.here(), arm, file.path), notes=IMPORTED)


@stage(Diversity, version=2)
def import_diversity(*, file: PublishedFile, label: str, arm: str, window: str) -> Payload:
    return Payload(published.diversity(file.here(), label, arm, window, Diversity.schema), notes=IMPORTED)


@stage(TrainingPools, version=1)
def import_pools(*, files: tuple[PublishedFile, ...]) -> Payload:
    return Payload(published.pools({Path(f.path).stem: f.here() for f in files}), notes=IMPORTED)


@stage(Pool, version=1)
def import_pool(*, files: tuple[PublishedFile, ...]) -> Payload:
    """The problems as published; their golds were not checked again, and their ids are the published ones."""
    return Payload(published.pool([f.here() for f in files]), notes=IMPORTED)


@stage(Splits, version=1)
def import_splits(*, heldout: PublishedFile, others: tuple[PublishedFile, ...]) -> Payload:
    return Payload(published.splits(heldout.here(), [f.here() for f in others]), notes=IMPORTED)


@stage(TrainingSeries, version=1)
def import_series(*, steps: PublishedFile, spread: PublishedFile) -> Payload:
    return Payload(published.series(steps.here(), spread.here()), notes=IMPORTED)


@stage(Curves, version=3)
def import_trajectory(*, trajectory: PublishedFile, pools: TrainingPools) -> Payload:
    """Held-out accuracy by step: Wilson intervals from the printed shares; gains with the bounds that unpublished
    pairing leaves (tasks.published.unpaired)."""
    table = store().read(pools)
    heldout = query("select source, count(*) as n from t where pool = 'heldout_eval' group by source", t=table)
    trained = query("select source, count(*) as n from t where pool = 'panel_train' group by source", t=table)
    sizes = dict(zip(heldout["source"].to_pylist(), heldout["n"].to_pylist(), strict=True))
    shares = dict(zip(trained["source"].to_pylist(), trained["n"].to_pylist(), strict=True))
    rows = trajectory_rows(published.rows_of(trajectory.here()), "panel", sizes, shares)
    return Payload(pa.Table.from_pylist(rows, schema=Curves.schema), notes=IMPORTED)


@stage(TokenChecks, version=1)
def check_tokens(*, tokens: PublishedFile, math: tuple[Groups, Groups], aime: tuple[Groups, Groups]) -> Payload:
    """math, aime: groups of panel and thinking on the two benchmarks of the token table."""
    summary, rows = published.whole(tokens.here()), []
    for name, refs in (("math", math), ("aime", aime)):
        groups = [store().read(ref).to_pydict() for ref in refs]
        correct = {arm: sum(g["num_correct"]) for arm, g in zip(("panel", "thinking"), groups, strict=True)}
        pairs = sum(min(a, b) for a, b in zip(*(g["group_size"] for g in groups), strict=True))
        rows += checks.token_checks(name, summary[name], correct, pairs)
    return Payload(pa.Table.from_pylist(rows, schema=TokenChecks.schema), notes=IMPORTED)


@stage(Designs, version=3)
def import_designs(*, folder: PublishedFolder) -> Payload:
    return Payload(published_designs.designs(folder.here()), notes=IMPORTED)


def by_folder(refs: tuple[Ref, ...], depth: int) -> dict[str, pa.Table]:
    """Imported artifacts by the folder below `reports/` that their file came from."""
    found: dict[str, list[pa.Table]] = {}
    for ref in refs:
        file = restored(PublishedFile, store().manifest(ref).recipe.arguments["file"])
        found.setdefault("/".join(file.path.split("/")[1:-1][:depth]), []).append(store().read(ref))
    return {folder: pa.concat_tables(parts) for folder, parts in found.items()}


@stage(Audit, version=7)
def audit_published(
    *,
    folder: PublishedFolder,
    designs: Designs,
    pool: Pool,
    splits: Splits,
    pools: TrainingPools,
    bands: tuple[Bands, ...],
    diversities: tuple[Diversity, ...],
    evaluations: tuple[Groups, ...],
    train_group_size: int,
) -> pa.Table:
    """The design faults that the published files show. Schema: AUDIT.

    diversities, evaluations: imported from the folders that `diversity_folders` and `evaluation_folders` name.
    """
    root = folder.here()
    screened = pa.concat_tables([store().read(ref) for ref in bands])
    measured, evaluated = by_folder(diversities, 1), by_folder(evaluations, 2)
    in_pools = store().read(pools)
    trains: dict[str, str] = {}
    for row in in_pools.to_pylist():
        if row["pool"] != "heldout_eval":
            said = trains.get(row["problem_id"])
            trains[row["problem_id"]] = f"{said} and {row['pool']}" if said else f"it is in {row['pool']}"
    counts = query("select arm, group_size as n, num_correct as c from t", t=screened).to_pylist()
    arms = sorted({r["arm"] for r in counts})
    made = store().read(designs)
    tables = {
        "designs": checks.with_truncation(made, published.whole(root / "reports/token_efficiency/summary.json")),
        "tests": rows_as("tests", checks.test_rows(root)),
        "coverage": rows_as("coverage", checks.coverage_rows(measured)),
        "reference_figures": rows_as("reference_figures", checks.reference_rows(screened, store().read(splits))),
        "leaks": rows_as("leaks", leak_rows(store().read(pool), store().read(splits), trains, "data/olympiad_pool")),
        "mislabelled": rows_as(
            "mislabelled",
            [
                row
                for arm in arms
                for row in mislabelled_rows(
                    arm, [(r["n"], r["c"]) for r in counts if r["arm"] == arm], train_group_size
                )
            ],
        ),
        "printed_intervals": rows_as("printed_intervals", checks.interval_rows(root, evaluated, DRAWS, 0)),
        "diversity_measures": rows_as("diversity_measures", checks.diversity_rows(measured)),
        "stops": rows_as("stops", checks.stop_rows(root)),
        "notes": rows_as("notes", checks.note_rows(root)),
        "trends": rows_as("trends", checks.trend_rows(root)),
        "evaluated": rows_as("evaluated", checks.evaluated_rows(evaluated, in_pools)),
        "equal_tokens": rows_as("equal_tokens", checks.equal_token_rows(evaluated, measured)),
    }
    return findings_of(tables)
