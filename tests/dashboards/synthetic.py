"""A small made-up study in a real store: rollouts as a sampler would leave them, then the real analysis stages."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.fingerprint import fingerprint
from storage.artifacts.kinds import Audit, Benchmark, Embeddings, Partitions, Pool, Rollouts, Splits, Training
from storage.artifacts.kinds.experiment import EXPOSURE
from storage.artifacts.manifest import Recipe
from storage.artifacts.provenance import provenance
from storage.artifacts.ref import Ref
from storage.artifacts.store import Payload, Store
from storage.records.runs import Amounts, Run, now
from tasks.engines.toolbox import Toolbox
from tasks.stage import Session, session

K = TypeVar("K", bound=Ref)
KS = (1, 2, 4, 8)
SOURCES = ("sums", "clocks")
HOSTILE = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>",
    "ש\u202eלום \u2066right to left\u2069 abc",
    "x" * 100_000,
    "a | b\n| --- |\n**bold** $\\frac{1}{2}$ \x00\x1b[31mred",
)


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


def rollouts(
    problems: list[dict[str, object]],
    arm: str,
    group_size: int,
    skill: float,
    *,
    step: int = 0,
    adapter: str | None = None,
    seed: int = 0,
    hostile: bool = False,
) -> pa.Table:
    """Harder problems come later; the panel writes short traces, the monologue long ones."""
    draw = random.Random(f"{arm} {step} {seed} {group_size}")
    tag = {"panel": "mutipersonaDebate"}.get(arm, "think")
    rows = []
    for i, problem in enumerate(problems):
        chance = max(0.0, min(1.0, skill + 0.75 - 1.5 * i / len(problems)))
        for g in range(group_size):
            correct = draw.random() < chance
            answer = str(problem["gold"]) if correct else str(draw.randrange(50, 99))
            words = " ".join(draw.choice(("so", "add", "carry", "check", "thus")) for _ in range(12))
            trace = (
                HOSTILE[(i + g) % len(HOSTILE)]
                if hostile and i < 4
                else f"Ann: {words}. Bob: {words}, \\(x = {answer}\\)."
            )
            rows.append(
                {
                    "problem_id": problem["problem_id"],
                    "source": problem["source"],
                    "arm": arm,
                    "adapter": adapter,
                    "step": step,
                    "seed": seed,
                    "rollout": g,
                    "trace": trace,
                    "tag_valid": draw.random() < 0.9,
                    "completion": f"<{tag}>{trace}</{tag}> <answer>{answer}</answer>",
                    "answer": answer,
                    "canonical": answer,
                    "verdict": "correct" if correct else "wrong",
                    "reason": "compared",
                    "correct": correct,
                    "grader_version": "1",
                    "finish": "stop",
                    "num_prompt_tokens": 40,
                    "num_tokens": draw.randrange(20, 60) * (1 if arm == "panel" else 5),
                    "logprob_sum": -12.5,
                }
            )
    return pa.Table.from_pylist(rows, schema=Rollouts.schema)


def steps_of(arm: str, seed: int, steps: int) -> pa.Table:
    draw = random.Random(f"steps {arm} {seed}")
    rows = []
    for step in range(1, steps + 1):
        share = step / steps
        rows.append(
            {
                "arm": arm,
                "seed": seed,
                "step": step,
                "reward_mean": 0.2 + 0.3 * share,
                "tag_valid_mean": 0.9,
                "correct_mean": 0.2 + 0.3 * share + draw.uniform(-0.05, 0.05),
                "live_groups": 0.8 - 0.2 * share,
                "all_zero": 1,
                "variance": 6,
                "all_one": 1,
                "entropy": 1.2 - 0.6 * share + draw.uniform(0, 0.05),
                "length_mean": 40.0,
                "length_cv_within": 0.3 + 0.2 * share,
                "truncated": 0.01,
                "ratio_mean": 1.0,
                "ratio_max": 1.2,
                "kl_behaviour": 0.001,
                "kl_start": None,
                "masked_tokens": 0,
                "bounded_tokens": 0,
                "loss": 0.1,
                "grad_norm": 0.5,
                "learning_rate": 2e-3,
                "num_tokens": 2000,
                "trained_tokens": 1500,
                "updates": 1,
                "skipped_updates": 0,
            }
        )
    return pa.Table.from_pylist(rows, schema=Training.schema)


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
    from storage.artifacts.kinds.report import Evidence, Problems, Tables
    from tasks.domain.grading.grading import GRADER_VERSION
    from tasks.evidence import Available
    from tasks.measures.bands import classify_bands, cross_bands
    from tasks.measures.standard import standard_measures
    from tasks.partitions import partition_rollouts
    from tasks.report.inputs import Setup
    from tasks.report.render import render_report

    store = Store(root)
    store.prepare()
    pool_rows = [
        {
            "problem_id": f"p{i:04d}",
            "source": SOURCES[i % 2],
            "source_id": f"{SOURCES[i % 2]}-{i}",
            "gold": str(i),
            "problem": f"What is {i} + 0? <b>Give</b> \\(x\\).",
            "gold_raw": str(i),
            "answer_type": "integer",
            "cluster": f"c{i}",
            "year": None,
            "level": None,
            "subject": None,
        }
        for i in range(problems)
    ]
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
                exposure = [
                    {
                        "arm": arm,
                        "seed": seed,
                        "step": s,
                        "problem_id": p["problem_id"],
                        "source": p["source"],
                        "num_correct": 3,
                        "group_size": 8,
                        "live": True,
                    }
                    for s in range(1, steps + 1)
                    for p in pool_rows[1:9]
                    if p not in held
                ]
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
        partitions = tuple(partition_rollouts(rollouts=ref, grader_version=GRADER_VERSION) for ref in final)
        tables, rows = _analysis(store, pool, splits, trainings, evaluations, final, embeddings, partitions)
        evidence = Evidence(
            screenings=tuple(screenings),
            bands=tuple(bands),
            trainings=tuple(trainings),
            evaluations=tuple(evaluations),
            final=tuple(final),
            sliced=lists.get("sliced", ()),
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


def embedded(table: pa.Table) -> pa.Table:
    """Vectors as an encoder would leave them: the panel's lie further apart."""
    kept = table.select(["problem_id", "source", "arm", "step", "seed", "rollout", "correct", "num_tokens"])
    spread = 0.35 if table["arm"][0].as_py() == "panel" else 0.25
    rng = np.random.default_rng(len(table) + int(table["step"][0].as_py()))
    vectors = np.ones((len(table), 8)) + spread * rng.normal(size=(len(table), 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    columns = {name: kept[name] for name in kept.column_names}
    n = len(table)
    return (
        pa.table(
            columns
            | {
                "window": ["whole"] * n,
                "coverage": [0.9] * n,
                "num_chars": pa.array([120] * n, pa.int32()),
                "embedding": pa.array(vectors.tolist(), pa.list_(pa.float32())),
            }
        )
        .select(Embeddings.schema.names)
        .cast(Embeddings.schema)
    )


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

    from tasks.measures.curves import training_curves
    from tasks.measures.diversity import compare_diversity, measure_answers, measure_diversity
    from tasks.measures.gains import compare_gains
    from tasks.measures.pass_at_k import contrast_pass_at_k, estimate_pass_at_k

    finals, ks = tuple(final), KS
    diversities = tuple(measure_diversity(embeddings=ref) for ref in embeddings)
    curve = tuple(evaluations) or finals
    answers = tuple(measure_answers(rollouts=r, partitions=c) for r, c in zip(final, partitions, strict=True))
    rows = {"diversities": diversities, "answers": answers}
    tables = {
        "curves": training_curves(trainings=tuple(trainings), evaluations=curve, pool=pool, splits=splits),
        "diversity": compare_diversity(diversities=diversities, draws=200),
        "passk": estimate_pass_at_k(rollouts=finals, ks=ks, draws=200, seed=0),
        "gains": compare_gains(evaluations=finals),
        "contrasts": contrast_pass_at_k(rollouts=finals, ks=ks, draws=200, seed=0),
        "audit": put(
            store,
            Audit,
            pa.table(
                {
                    "code": ["few_problems"],
                    "fact": ["<b>10</b> held-out problems"],
                    "place": ["made up"],
                    "inference": ["intervals are wide"],
                    "value": [10.0],
                    "query": ["lint_made_up"],
                }
            ),
        ),
    }
    return tables, rows


def run_under_way() -> Run:
    """The record of a run on another host that beats now."""
    beat = now()
    return Run(
        id="demo-01234567",
        profile="demo",
        request={},
        state="running",
        at="train panel",
        stages=10,
        stages_done=3,
        spent=Amounts(),
        started=beat,
        heartbeat=beat,
        host="elsewhere",
        pid=1,
    )
