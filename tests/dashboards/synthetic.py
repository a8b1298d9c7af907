"""A small made-up study in a real store: rollouts as a sampler would leave them, then the real analysis stages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
from tasks.domain.policies import BaseModel, Policy
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
ARMS, KS = ("panel", "thinking"), (1, 2, 4, 8)
MODEL, COMMAND = BaseModel(name="none", sha256="0" * 64), "varband run demo --set training.steps=4"


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
    """Return the report of a study with made-up rollouts, by the experiment's own measures. Deterministic."""
    import flows.experiment
    from flows.artifacts import ArmArtifacts, Measured, ObjectiveResult, Screened, Start, Trained
    from flows.problems import Prepared, Problems
    from tasks.measures.bands import classify_bands
    from tasks.measures.diversity import measure_diversity

    store = Store(root)
    store.prepare()
    pool_rows = pool_rows_of(problems)
    held = pool_rows[::4]
    pool = put(store, Pool, pool_rows)
    split_rows = [p | {"split": "heldout" if p in held else "train"} for p in pool_rows]
    splits = put(store, Splits, split_rows, inputs={"pool": [str(pool)]})
    sliced = {"hard_ones": pool_rows[:6], "all_of_them": pool_rows[:12]} if benchmarks else {}
    chosen = {name: _benchmark(store, name, rows) for name, rows in sliced.items()}
    study = _study(seeds if steps else (), steps, tuple(sliced))

    def sampled(table: pa.Table, of: str, chosen: Ref = splits, **policy: object) -> Rollouts:
        inputs = {"pool": [str(pool)], "splits": [str(chosen)]}
        return put(store, Rollouts, table, about={"of": of, **policy}, inputs=inputs)

    def measured(arm: str, skill: float, compared: bool, **policy: Any) -> Measured:
        rows = rollouts(held, arm, 8, skill, hostile=hostile and not policy, **policy)
        final = sampled(rows, "final", arm=arm, **policy)
        vectors = put(store, Embeddings, embedded(rows), inputs={"rollouts": [str(final)]})
        asked = tuple(
            sampled(rollouts(some[1:], arm, 4, skill, **policy), name, chosen[name], arm=arm, **policy)
            for name, some in sliced.items()
        )
        title = f"{arm} at step {policy.get('step', 0)}, seed {policy.get('seed', 0)}"
        diversity, searches = measure_diversity(embeddings=vectors), searched(store, final, pool)
        return Measured(title, final, vectors, diversity, final, asked, final if compared else None, searches)

    def made(arm: str, skill: float) -> ArmArtifacts:
        """One arm; the panel is also trained with another objective."""
        objectives = steps > 0 and arm == "panel"
        screening = sampled(rollouts(pool_rows, arm, 8, skill, hostile=hostile), "screening", arm=arm)
        bands, trained = classify_bands(rollouts=screening), list[Trained]()
        for seed in study.profile.seeds:
            folder = store.scratch / f"exposure-{arm}-{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            exposure = exposure_rows(arm, seed, steps, [p for p in pool_rows[1:9] if p not in held])
            pq.write_table(pa.Table.from_pylist(exposure, schema=EXPOSURE), folder / "exposure.parquet")
            made_from = {"about": [arm, seed], "inputs": {"bands": [str(bands)]}, "files": folder}
            training = put(store, Training, steps_of(arm, seed, steps), **made_from)
            policy = {"adapter": str(training), "seed": seed}
            curve = []
            for step in sorted({0, steps // 2, steps} if seed == seeds[0] else {steps // 2, steps}):
                rows = rollouts(held, arm, 4, skill + 0.2 * step / steps, step=step, **(policy if step else {}))
                curve.append(sampled(rows, "curve", arm=arm, seed=seed, step=step))
            end = measured(arm, skill + 0.2, objectives and seed == seeds[0], step=steps, **policy)
            trained.append(Trained(seed, training, tuple(curve), end))
        other = ()
        if objectives:
            training = put(store, Training, steps_of(arm, 0, steps), about="another objective")
            rows = rollouts(held, arm, 8, 0.4, step=steps, adapter=str(training), seed=0)
            drawn = sampled(rows, "another objective", arm=arm)
            other = (ObjectiveResult("panel by MaxRL", "MaxRL", training, drawn),)
        screened = Screened(arm, Start(Policy(arm=arm, model=MODEL)), screening, bands, bands)
        return ArmArtifacts(screened, measured(arm, skill, objectives), tuple(trained), other)

    with session(Session(store, Toolbox())), pytest.MonkeyPatch.context() as patch:
        known = put(store, Calibrations, calibration_rows())
        at = Prepared(Problems(pool, splits), {}, tuple((pool, one) for one in chosen.values()), known)
        arms = [made(arm, 0.1 + 0.2 * place) for place, arm in enumerate(ARMS)]
        patch.setattr(flows.experiment, "prepare", lambda _: at)
        patch.setattr(flows.experiment, "make_arms", lambda *_: arms)
        patch.setattr(flows.experiment, "audit_designs", lambda **_: put(store, Audit, audit_rows()))
        return flows.experiment.experiment(study)


def _study(seeds: tuple[int, ...], steps: int, benchmarks: tuple[str, ...]) -> Any:
    from flows.study.profile import Objective, Search
    from flows.study.profiles import BENCHMARKS, DEMO
    from flows.study.resolve import Study

    profile = replace(
        DEMO,
        about="does a panel gain more than thinking?",
        arms=ARMS,
        seeds=seeds,
        training=replace(DEMO.training, steps=max(1, steps)),
        passk=replace(DEMO.passk, ks=KS, draws=200),
        search=Search(methods=("first", "majority"), tokens=3200),
        benchmarks=tuple(replace(BENCHMARKS[0], name=name, group_size=4) for name in benchmarks),
        objectives=(Objective(name="MaxRL", training=replace(DEMO.training, advantage="max_rl")),) if seeds else (),
    )
    return Study(profile, dict.fromkeys(ARMS, MODEL), {}, "", {}, command=COMMAND)


def _benchmark(store: Store, name: str, problems: list[dict[str, Any]]) -> Benchmark:
    """Return a benchmark whose first problem is nearly one of training."""
    asked = {"benchmark": name, "level": "5", "split": "benchmark"}
    near = {"split": "near_training", "near": "math-7", "similarity": 1.0}
    return put(store, Benchmark, [p | asked | ({} if i else near) for i, p in enumerate(problems)], about=name)


def searched(store: Store, ref: Rollouts, pool: Pool) -> tuple[Searches, ...]:
    """Return two searches: one answers with the first rollout, one with the newest."""
    inputs = {"pool": [str(pool)], "rollouts": [str(ref)]}
    return tuple(
        put(store, Searches, searched_rows(store.read(ref), method), about=[method, str(ref)], inputs=inputs)
        for method in ("first", "majority")
    )


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
