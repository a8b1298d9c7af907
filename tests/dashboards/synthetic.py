"""A small made-up study in a real store: rollouts as a sampler would leave them, then the real analysis stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.fingerprint import fingerprint
from storage.artifacts.kinds import (
    EXPOSURE,
    Audit,
    Benchmark,
    Calibrations,
    Embeddings,
    Partitions,
    Pool,
    Rollouts,
    Splits,
    Training,
)
from storage.artifacts.manifest import Recipe
from storage.artifacts.provenance import provenance
from storage.artifacts.ref import Ref
from storage.artifacts.store import Payload, Store
from tasks.engines.toolbox import Toolbox
from tasks.stage import Session, session
from tests.dashboards.made_up_objectives import trained_otherwise
from tests.dashboards.made_up_rows import (
    audit_rows,
    calibration_rows,
    embedded,
    exposure_rows,
    pool_rows_of,
    rollouts,
    steps_of,
)
from tests.dashboards.made_up_searches import BUDGETS, searched

K = TypeVar("K", bound=Ref)
KS = (1, 2, 4, 8)


def put(
    store: Store,
    kind: type[K],
    table: pa.Table,
    *,
    about: object = None,
    inputs: dict[str, list[str]] | None = None,
    files: Path | None = None,
) -> K:
    """An artifact of rows made up here; its recipe says so."""
    recipe = Recipe(stage=f"made_up_{kind.KIND}", version=1, arguments={"about": about}, inputs=inputs or {})
    ref = kind.of(fingerprint(recipe.model_dump()))
    store.write(ref, Payload(table, files), recipe, provenance(0.1))
    return ref


def made_up_study(
    root: Path,
    *,
    arms: tuple[str, ...] = ("panel", "thinking"),
    seeds: tuple[int, ...] = (0,),
    problems: int = 40,
    steps: int = 10,
    hostile: bool = False,
    benchmarks: bool = True,
) -> Ref:
    """The report of a study whose rollouts are made up. Deterministic."""
    from storage.artifacts.kinds import Evidence, Problems, Tables
    from tasks.domain.grading.grading import GRADER_VERSION
    from tasks.evidence import Available
    from tasks.measures.bands import classify_bands, cross_bands
    from tasks.measures.standard import standard_measures
    from tasks.partitions import partition_rollouts
    from tasks.report.render import Setup, render_report

    store = Store(root)
    store.prepare()
    pool_rows = pool_rows_of(problems)
    held = [p for i, p in enumerate(pool_rows) if i % 4 == 0]
    pool = put(store, Pool, pa.Table.from_pylist(pool_rows, schema=Pool.schema))
    split_rows = [
        {"problem_id": p["problem_id"], "source": p["source"], "split": "heldout" if p in held else "train"}
        for p in pool_rows
    ]
    splits = put(store, Splits, pa.Table.from_pylist(split_rows, schema=Splits.schema), inputs={"pool": [str(pool)]})
    screenings, bands, trainings, evaluations, final = [], [], [], [], []
    policies: list[dict[str, Any]] = []

    def sampled(table: pa.Table, **about: object) -> Rollouts:
        return put(store, Rollouts, table, about=about, inputs={"pool": [str(pool)], "splits": [str(splits)]})

    with session(Session(store, Toolbox())):
        for place, arm in enumerate(arms):
            skill = 0.1 + 0.2 * place
            screening = sampled(rollouts(pool_rows, arm, 8, skill, hostile=hostile), arm=arm, of="screening")
            screenings.append(screening)
            bands.append(classify_bands(rollouts=screening))
            final.append(sampled(rollouts(held, arm, 8, skill, hostile=hostile), arm=arm, of="before"))
            policies.append({"arm": arm, "skill": skill})
            for seed in seeds if steps else ():
                folder = store.scratch / f"exposure-{arm}-{seed}"
                folder.mkdir(parents=True, exist_ok=True)
                exposure = exposure_rows(arm, seed, steps, [p for p in pool_rows[1:9] if p not in held])
                pq.write_table(pa.Table.from_pylist(exposure, schema=EXPOSURE), folder / "exposure.parquet")
                training = put(
                    store,
                    Training,
                    steps_of(arm, seed, steps),
                    about=[arm, seed],
                    inputs={"bands": [str(bands[-1])]},
                    files=folder,
                )
                trainings.append(training)
                for step in sorted({0, steps // 2, steps} if seed == seeds[0] else {steps // 2, steps}):
                    policy = {"step": step, "adapter": str(training), "seed": seed} if step else {}
                    rows = rollouts(held, arm, 4, skill + 0.2 * step / steps, **policy)
                    evaluations.append(sampled(rows, arm=arm, seed=seed, step=step, of="curve"))
                rows = rollouts(held, arm, 8, skill + 0.2, step=steps, adapter=str(training), seed=seed)
                final.append(sampled(rows, arm=arm, seed=seed, of="after"))
                policies.append(
                    {"arm": arm, "skill": skill + 0.2, "step": steps, "adapter": str(training), "seed": seed}
                )
        lists = _benchmarks(store, pool_rows, pool, policies) if benchmarks else {}
        embeddings = tuple(
            put(store, Embeddings, embedded(store.read(ref)), inputs={"rollouts": [str(ref)]}) for ref in final
        )
        calibration = put(store, Calibrations, calibration_rows())
        partitions = tuple(
            partition_rollouts(rollouts=ref, embeddings=vectors, calibration=calibration, grader_version=GRADER_VERSION)
            for ref, vectors in zip(final, embeddings, strict=True)
        )
        tables, rows = _analysis(store, pool, splits, trainings, evaluations, final, embeddings, partitions)
        evidence = Evidence(
            screenings=tuple(screenings),
            bands=tuple(bands),
            trainings=tuple(trainings),
            evaluations=tuple(evaluations),
            final=tuple(final),
            sliced=lists.get("sliced", ()),
            calibrations=(calibration,),
            searches=searched(put, store, final, pool),
            **rows,
        )
        available = Available(
            pool=pool,
            splits=splits,
            partitions=partitions,
            deep=tuple(final),
            embeddings=embeddings,
            arms=arms,
            ks=KS,
            train_group_size=8,
            budgets=BUDGETS,
            **trained_otherwise(store, held, sampled, put, trainings, final),
            **evidence.arguments(),
        )
        return render_report(
            setup=Setup(
                profile="made-up",
                purpose="Rows made up for tests.",
                question="Does a wider search give more to climb?",
                model="none",
                arms=arms,
            ),
            problems=Problems(pool=pool, splits=splits, benchmarks=lists.get("benchmarks", ())),
            evidence=evidence,
            tables=Tables(
                crosstab=cross_bands(bands=tuple(bands), train_group_size=8),
                slices=lists.get("slices", ()),
                slice_contrasts=lists.get("slice_contrasts", ()),
                standard=standard_measures(available),
                **tables,
            ),
        )


def _benchmarks(store: Store, pool_rows: list[dict[str, Any]], pool: Pool, policies: list[dict[str, Any]]) -> Any:
    """Two benchmarks that share problems; of each the first problem nearly stands in training."""
    from tasks.measures.pass_at_k import contrast_pass_at_k, estimate_pass_at_k

    found: dict[str, list[Any]] = {name: [] for name in ("benchmarks", "sliced", "slices", "slice_contrasts")}
    for name, problems in (("hard_ones", pool_rows[:6]), ("all_of_them", pool_rows[:12])):
        rows = [
            {
                "benchmark": name,
                "level": "5",
                **{c: row[c] for c in ("problem_id", "source", "source_id")},
                "split": "benchmark" if i else "near_training",
                "near": None if i else "math-7",
                "similarity": None if i else 1.0,
            }
            for i, row in enumerate(problems)
        ]
        choice = put(store, Benchmark, pa.Table.from_pylist(rows, schema=Benchmark.schema), about=name)
        inputs = {"pool": [str(pool)], "splits": [str(choice)]}
        drawn = tuple(
            put(
                store,
                Rollouts,
                rollouts(problems[1:], p["arm"], 4, **{k: v for k, v in p.items() if k != "arm"}),
                about=[name, i],
                inputs=inputs,
            )
            for i, p in enumerate(policies)
        )
        found["benchmarks"].append(choice)
        found["sliced"] += drawn
        found["slices"].append(estimate_pass_at_k(rollouts=drawn, ks=(1, 2, 4), draws=200, seed=0))
        found["slice_contrasts"].append(contrast_pass_at_k(rollouts=drawn, ks=(1, 2, 4), draws=200, seed=0))
    return {name: tuple(refs) for name, refs in found.items()}


def _analysis(
    store: Store,
    pool: Pool,
    splits: Splits,
    trainings: list[Training],
    evaluations: list[Rollouts],
    final: list[Rollouts],
    embeddings: tuple[Embeddings, ...],
    partitions: tuple[Partitions, ...],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(tables, rows) of the report."""

    from tasks.measures.curves import compare_gains, training_curves
    from tasks.measures.diversity import compare_diversity, measure_answers, measure_diversity
    from tasks.measures.pass_at_k import contrast_pass_at_k, estimate_pass_at_k

    finals, ks = tuple(final), KS
    diversities = tuple(measure_diversity(embeddings=ref) for ref in embeddings)
    curve = tuple(evaluations) or finals
    answers = tuple(measure_answers(rollouts=r, partitions=c) for r, c in zip(final, partitions, strict=True))
    rows = {"diversities": diversities, "answers": answers}
    tables = {
        "curves": training_curves(
            trainings=tuple(trainings), evaluations=curve, final=finals, pool=pool, splits=splits
        ),
        "diversity": compare_diversity(diversities=diversities),
        "passk": estimate_pass_at_k(rollouts=finals, ks=ks, draws=200, seed=0),
        "gain_differences": compare_gains(evaluations=finals),
        "contrasts": contrast_pass_at_k(rollouts=finals, ks=ks, draws=200, seed=0),
        "audit": put(store, Audit, audit_rows()),
    }
    return tables, rows
