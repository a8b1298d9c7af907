"""A small made-up study in a real store: rollouts as a sampler would leave them, then the real analysis stages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.fingerprint import fingerprint
from storage.artifacts.manifest import Recipe, provenance
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import (
    EXPOSURE,
    Audit,
    Benchmark,
    Calibrations,
    Embeddings,
    Pool,
    Rollouts,
    Searches,
    Splits,
    Training,
)
from storage.artifacts.store import Payload, Store
from tasks.engines.toolbox import Toolbox
from tasks.stage import Session, session
from tests.dashboards.made_up_rows import (
    audit_rows,
    calibration_rows,
    embedded,
    exposure_rows,
    pool_rows_of,
    rollouts,
    steps_of,
)

K = TypeVar("K", bound=Ref)
ARMS, KS, BUDGETS = ("panel", "thinking"), (1, 2, 4, 8), (400, 800, 1600, 3200)


def put(
    store: Store,
    kind: type[K],
    rows: pa.Table | list[dict[str, Any]],
    *,
    about: object = None,
    inputs: dict[str, list[str]] | None = None,
    files: Path | None = None,
) -> K:
    """Write an artifact of made-up rows. Its recipe names the stage `made_up_KIND`."""
    recipe = Recipe(stage=f"made_up_{kind.KIND}", version=1, arguments={"about": about}, inputs=inputs or {})
    ref, table = kind.of(fingerprint(recipe.model_dump())), rows
    if isinstance(table, list):
        table = pa.Table.from_pylist(table, schema=kind.schema)
    store.write(ref, Payload(table, files), recipe, provenance(0.1))
    return ref


def made_up_study(
    root: Path,
    *,
    seeds: tuple[int, ...] = (0,),
    problems: int,
    steps: int,
    hostile: bool = False,
    benchmarks: bool = True,
) -> Ref:
    """Return the report of a study with made-up rollouts. Deterministic."""
    from storage.artifacts.schemas import Evidence, Problems, Tables
    from tasks.domain.grading.grading import GRADER_VERSION
    from tasks.evidence import Available, standard_measures
    from tasks.measures.bands import classify_bands, cross_bands
    from tasks.measures.curves import compare_gains, training_curves
    from tasks.measures.diversity import compare_diversity, measure_answers, measure_diversity
    from tasks.measures.pass_at_k import contrast_pass_at_k, estimate_pass_at_k
    from tasks.partitions import partition_rollouts
    from tasks.report.render import Setup, render_report

    store = Store(root)
    store.prepare()
    pool_rows = pool_rows_of(problems)
    held = pool_rows[::4]
    pool = put(store, Pool, pool_rows)
    split_rows = [p | {"split": "heldout" if p in held else "train"} for p in pool_rows]
    splits = put(store, Splits, split_rows, inputs={"pool": [str(pool)]})
    screenings, bands, trainings, evaluations, final = [], [], [], [], []
    policies: list[dict[str, Any]] = []

    def sampled(table: pa.Table, **about: object) -> Rollouts:
        return put(store, Rollouts, table, about=about, inputs={"pool": [str(pool)], "splits": [str(splits)]})

    with session(Session(store, Toolbox())):
        for place, arm in enumerate(ARMS):
            skill = 0.1 + 0.2 * place
            screenings.append(sampled(rollouts(pool_rows, arm, 8, skill, hostile=hostile), arm=arm, of="screening"))
            bands.append(classify_bands(rollouts=screenings[-1]))
            final.append(sampled(rollouts(held, arm, 8, skill, hostile=hostile), arm=arm, of="before"))
            policies.append({"arm": arm, "skill": skill})
            for seed in seeds if steps else ():
                folder = store.scratch / f"exposure-{arm}-{seed}"
                folder.mkdir(parents=True, exist_ok=True)
                exposure = exposure_rows(arm, seed, steps, [p for p in pool_rows[1:9] if p not in held])
                pq.write_table(pa.Table.from_pylist(exposure, schema=EXPOSURE), folder / "exposure.parquet")
                made_from = {"about": [arm, seed], "inputs": {"bands": [str(bands[-1])]}, "files": folder}
                trainings.append(put(store, Training, steps_of(arm, seed, steps), **made_from))
                policy = {"adapter": str(trainings[-1]), "seed": seed}
                for step in sorted({0, steps // 2, steps} if seed == seeds[0] else {steps // 2, steps}):
                    better = {"skill": skill + 0.2 * step / steps, "step": step} | (policy if step else {})
                    rows = rollouts(held, arm, 4, **better)
                    evaluations.append(sampled(rows, arm=arm, seed=seed, step=step, of="curve"))
                better = {"skill": skill + 0.2, "step": steps} | policy
                final.append(sampled(rollouts(held, arm, 8, **better), arm=arm, seed=seed, of="after"))
                policies.append({"arm": arm} | better)
        lists = _benchmarks(store, pool_rows, pool, policies) if benchmarks else {}
        finals = tuple(final)
        embeddings = tuple(
            put(store, Embeddings, embedded(store.read(ref)), inputs={"rollouts": [str(ref)]}) for ref in final
        )
        calibration = put(store, Calibrations, calibration_rows())
        graded = {"calibration": calibration, "grader_version": GRADER_VERSION}
        partitions = tuple(
            partition_rollouts(rollouts=ref, embeddings=vectors, **graded)
            for ref, vectors in zip(final, embeddings, strict=True)
        )
        diversities = tuple(measure_diversity(embeddings=ref) for ref in embeddings)
        evidence = Evidence(
            screenings=tuple(screenings),
            bands=tuple(bands),
            trainings=tuple(trainings),
            evaluations=tuple(evaluations),
            final=finals,
            sliced=lists.get("sliced", ()),
            calibrations=(calibration,),
            searches=searched(store, final, pool),
            diversities=diversities,
            answers=tuple(measure_answers(rollouts=r, partitions=c) for r, c in zip(final, partitions, strict=True)),
        )
        available = Available(
            pool=pool,
            splits=splits,
            partitions=partitions,
            deep=finals,
            embeddings=embeddings,
            arms=ARMS,
            ks=KS,
            train_group_size=8,
            budgets=BUDGETS,
            **by_another_objective(store, held, sampled, trainings, final),
            **evidence.arguments(),
        )
        return render_report(
            setup=Setup(
                profile="made-up",
                purpose="Rows made up for tests.",
                question="Does a wider search give more to climb?",
                asks="does a panel gain more than thinking?",
                model="none",
                arms=ARMS,
                changes=("training.steps: 40 → 4",),
                command="varband run demo --set training.steps=4",
                settings="steps = 4\n\n[pool]\n",
                prompts=("panel (tags think; stop </answer>):\nSolve `it`.\n\n# Then {problem}\n<think>",),
            ),
            problems=Problems(pool=pool, splits=splits, benchmarks=lists.get("benchmarks", ())),
            evidence=evidence,
            tables=Tables(
                crosstab=cross_bands(bands=tuple(bands), train_group_size=8),
                slices=lists.get("slices", ()),
                slice_contrasts=lists.get("slice_contrasts", ()),
                standard=standard_measures(available),
                curves=training_curves(
                    trainings=evidence.trainings,
                    evaluations=evidence.evaluations or finals,
                    **{"final": finals, "pool": pool, "splits": splits},
                ),
                diversity=compare_diversity(diversities=diversities),
                passk=estimate_pass_at_k(rollouts=finals, ks=KS, draws=200, seed=0),
                gain_differences=compare_gains(evaluations=finals),
                contrasts=contrast_pass_at_k(rollouts=finals, ks=KS, draws=200, seed=0),
                audit=put(store, Audit, audit_rows()),
            ),
        )


def _benchmarks(store: Store, pool_rows: list[dict[str, Any]], pool: Pool, policies: list[dict[str, Any]]) -> Any:
    """Return two benchmarks that share problems. The first problem of each is nearly one of training."""
    from tasks.measures.pass_at_k import contrast_pass_at_k, estimate_pass_at_k

    found: dict[str, list[Any]] = {name: [] for name in ("benchmarks", "sliced", "slices", "slice_contrasts")}
    for name, problems in (("hard_ones", pool_rows[:6]), ("all_of_them", pool_rows[:12])):
        asked = {"benchmark": name, "level": "5", "split": "benchmark"}
        near = {"split": "near_training", "near": "math-7", "similarity": 1.0}
        rows = [problem | asked | ({} if i else near) for i, problem in enumerate(problems)]
        choice = put(store, Benchmark, rows, about=name)
        inputs = {"pool": [str(pool)], "splits": [str(choice)]}
        drawn = tuple(
            put(store, Rollouts, rollouts(problems[1:], group_size=4, **policy), about=[name, i], inputs=inputs)
            for i, policy in enumerate(policies)
        )
        found["benchmarks"].append(choice)
        found["sliced"] += drawn
        found["slices"].append(estimate_pass_at_k(rollouts=drawn, ks=(1, 2, 4), draws=200, seed=0))
        found["slice_contrasts"].append(contrast_pass_at_k(rollouts=drawn, ks=(1, 2, 4), draws=200, seed=0))
    return {name: tuple(refs) for name, refs in found.items()}


def by_another_objective(
    store: Store, held: list[dict[str, Any]], sampled: Any, trainings: list[Training], final: list[Rollouts]
) -> dict[str, Any]:
    """Return the inputs of the measure `objectives`: one arm and seed, trained with two objectives."""
    from tasks.domain.grading.grading import GRADER_VERSION
    from tasks.partitions import partition_answers

    if not trainings:
        return {}
    arm, steps = "panel", store.read(trainings[0]).num_rows
    other = put(store, Training, steps_of(arm, 0, steps), about="another objective")
    rows = rollouts(held, arm, 8, 0.4, step=steps, adapter=str(other), seed=0)
    start, ends = final[0], (final[1], sampled(rows, arm=arm, of="another objective"))
    return {
        "objectives": ("as the study has it", "MaxRL"),
        "objective_trainings": (trainings[0], other),
        "objective_starts": (start,),
        "objective_ends": ends,
        "objective_start_answers": (partition_answers(rollouts=start, grader_version=GRADER_VERSION),),
        "objective_end_answers": tuple(partition_answers(rollouts=r, grader_version=GRADER_VERSION) for r in ends),
    }


def searched(store: Store, sampled: Sequence[Rollouts], pool: Pool) -> tuple[Searches, ...]:
    """Return two searches per artifact of rollouts: one answers with the first rollout, one with the newest."""
    found = []
    for ref in sampled:
        for method in ("first", "majority"):
            rows, inputs = searched_rows(store.read(ref), method), {"pool": [str(pool)], "rollouts": [str(ref)]}
            found.append(put(store, Searches, rows, about=[method, str(ref)], inputs=inputs))
    return tuple(found)


def searched_rows(sampled: pa.Table, method: str) -> list[dict[str, Any]]:
    """Return the nodes of a search with one rollout per round. Rollout 7 was cut."""
    rows: list[dict[str, Any]] = []
    first: dict[str, dict[str, Any]] = {}
    for row in sampled.to_pylist():
        problem, number = row["problem_id"], row["rollout"]
        chosen = first.setdefault(problem, row) if method == "first" else row
        cut = "a prompt of 900 tokens and max_tokens=128 do not fit the context of 512" if number == 7 else None
        node = {"method": method, "round": number, "node": f"{problem}/{number}", "operator": "draw", "cut": cut}
        node |= {"parents": f"{problem}/0" if number else "", "num_scored_tokens": 0}
        node |= {"chosen": f"{problem}/{chosen['rollout']}", "chosen_answer": chosen["answer"]}
        rows.append(row | node | {"chosen_correct": chosen["correct"]})
    return rows
