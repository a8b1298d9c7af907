"""Designs: how each run was made, one row a run, and the lints that lay compared runs side by side (`lint_*.sql`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa

from storage.artifacts.fingerprint import restored
from storage.artifacts.kinds import Audit, Designs
from storage.artifacts.manifest import Recipe
from storage.artifacts.ref import Ref
from storage.rules import Band
from storage.sql import QUERIES, named, query
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import Policy, Sampling
from tasks.domain.problems.leaks import find_leaks
from tasks.domain.statistics.difficulty import expectations
from tasks.stage import store

Row = dict[str, Any]
#: The version of `train_adapter` from which the learner divides its logits by the sampler's temperature.
LEARNS_AT_ITS_TEMPERATURE = 2


#: p-values as printed, beside what the statistic gives under both distributions.
TESTS = pa.schema(
    [
        ("test", pa.string()),
        ("t", pa.float64()),
        ("n", pa.int64()),
        ("p_printed", pa.float64()),
        ("p_t", pa.float64()),
        ("p_normal", pa.float64()),
        ("place", pa.string()),
    ]
)
#: How much of its traces an encoder has seen, by arm: `measured`, or about, from mean `lengths`.
COVERAGE = pa.schema(
    [
        ("arm", pa.string()),
        ("problems", pa.string()),
        ("window", pa.string()),
        ("coverage", pa.float64()),
        ("basis", pa.string()),
        ("place", pa.string()),
    ]
)
#: A figure said to be of one set of problems, beside its value there and on another.
REFERENCES = pa.schema(
    [
        ("figure", pa.string()),
        ("claimed", pa.float64()),
        ("on", pa.string()),
        ("value", pa.float64()),
        ("elsewhere", pa.string()),
        ("value_elsewhere", pa.float64()),
        ("place", pa.string()),
    ]
)
#: Near-duplicates between train and held-out.
PAIRS = pa.schema(
    [
        ("source_id", pa.string()),
        ("other_source_id", pa.string()),
        ("similarity", pa.float64()),
        ("kind", pa.string()),
        ("trains", pa.string()),
        ("place", pa.string()),
    ]
)
#: Problems whose group at the screening's size is dead, and how many of them the training's size would make live.
MISLABELLED = pa.schema([("arm", pa.string()), ("count", pa.int64()), ("n", pa.int64()), ("share", pa.float64())])
#: How each arm was trained: `name=value` of every setting but the seed.
RECIPES = pa.schema([("arm", pa.string()), ("settings", pa.list_(pa.string())), ("place", pa.string())])
#: Intervals printed over rollouts, beside the interval over problems.
INTERVALS = pa.schema(
    [
        ("figure", pa.string()),
        ("n", pa.int64()),
        ("problems", pa.int64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("low_problems", pa.float64()),
        ("high_problems", pa.float64()),
        ("place", pa.string()),
    ]
)
#: Diversity by policy, for what the controls say. `same_as`: another window with the same figures.
DIVERSITY_MEASURES = pa.schema(
    [
        ("arm", pa.string()),
        ("problems", pa.string()),
        ("window", pa.string()),
        ("diversity", pa.float64()),
        ("share_correct", pa.float64()),
        ("same_as", pa.string()),
        ("largest_change", pa.float64()),
        ("place", pa.string()),
    ]
)
#: How many rollouts of an arm have the form that was asked for.
FORM = pa.schema(
    [
        ("arm", pa.string()),
        ("problems", pa.string()),
        ("rollouts", pa.int64()),
        ("no_answer", pa.float64()),
        ("invalid_tags", pa.float64()),
        ("truncated", pa.float64()),
        ("place", pa.string()),
    ]
)
#: Trainings with the steps that were asked for and those that were executed. stopped_at, resumed_from: the step that a
#: training was interrupted at and the one that it went on from, null where it ran through or was not gone on with.
STOPS = pa.schema(
    [
        ("run", pa.string()),
        ("requested", pa.int64()),
        ("executed", pa.int64()),
        ("stopped_at", pa.int64()),
        ("resumed_from", pa.int64()),
        ("reason", pa.string()),
        ("place", pa.string()),
    ]
)
#: What a run log notes of itself.
NOTES = pa.schema([("code", pa.string()), ("said", pa.string()), ("place", pa.string())])
#: The change of a series from its first point, with its last point and without.
TRENDS = pa.schema(
    [("series", pa.string()), *((f"{name}_step", pa.int64()) for name in ("first", "before", "last"))]
    + [(name, pa.float64()) for name in ("change", "change_without_last", "slope", "slope_without_last")]
    + [("place", pa.string())]
)
#: Two arms at as many tokens a problem, as far as whole rollouts allow.
EQUAL_TOKENS = pa.schema(
    [
        ("arm", pa.string()),
        ("other", pa.string()),
        ("problems", pa.string()),
        ("k", pa.int64()),
        ("other_k", pa.int64()),
    ]
    + [(name, pa.float64()) for name in ("estimate", "other_estimate", "tokens", "other_tokens")]
    + [("place", pa.string())]
)
#: How many of the problems that were evaluated stand in a training pool.
EVALUATED = pa.schema(
    [("problems", pa.string()), ("n", pa.int64()), ("pool", pa.string()), ("count", pa.int64()), ("place", pa.string())]
)
#: By source, of a training's problems and of the groups that it sampled: how many, and how many in all.
EXPOSED = pa.schema(
    [("arm", pa.string()), ("source", pa.string())]
    + [(name, pa.int64()) for name in ("problems", "all_problems", "groups", "all_groups")]
    + [("place", pa.string())]
)
TABLES: dict[str, pa.Schema] = {
    "designs": Designs.schema,
    "tests": TESTS,
    "coverage": COVERAGE,
    "reference_figures": REFERENCES,
    "leaks": PAIRS,
    "mislabelled": MISLABELLED,
    "printed_intervals": INTERVALS,
    "diversity_measures": DIVERSITY_MEASURES,
    "recipes": RECIPES,
    "form": FORM,
    "stops": STOPS,
    "notes": NOTES,
    "trends": TRENDS,
    "equal_tokens": EQUAL_TOKENS,
    "evaluated": EVALUATED,
    "exposed": EXPOSED,
}


def from_sampling(ref: str, arguments: Mapping[str, Any], problems: str, role: str, counted: Row) -> Row:
    """The design of a `rollouts` artifact from its recipe. `counted`: what its rows say (num_problems, grader, …)."""
    policy, sampling = restored(Policy, arguments["policy"]), restored(Sampling, arguments["sampling"])
    return {
        "run": ref,
        "role": role,
        "family": f"{role} of {problems}",
        "arm": policy.arm,
        "model": _named(policy),
        "policy": _sampled_from(policy),
        "problems": problems,
        "group_size": arguments["group_size"],
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "place": ref,
    } | counted


def from_training(ref: str, recipe: Recipe, problems: str, seeds: int, last_evaluated: int | None) -> Row:
    """The design of a `training` artifact from its recipe."""
    start, learner = restored(Policy, recipe.arguments["start"]), restored(LearnerConfig, recipe.arguments["learner"])
    drawn = restored(Sampling, recipe.arguments["rollouts"])
    return {
        "run": ref,
        "role": "training",
        "family": "training",
        "arm": start.arm,
        "model": _named(start),
        "policy": _sampled_from(start),
        "problems": problems,
        "group_size": learner.group_size,
        "temperature": drawn.temperature,
        "top_p": drawn.top_p,
        "learned_at": drawn.temperature if recipe.version >= LEARNS_AT_ITS_TEMPERATURE else 1.0,
        "max_tokens": drawn.max_tokens,
        "steps": learner.steps,
        "seeds": seeds,
        "last_evaluated": last_evaluated,
        "place": ref,
    }


def _named(policy: Policy) -> str:
    """Its base model, as people call it and by content."""
    return f"{policy.model.name} ({policy.model.sha256[:12]})".strip()


def _sampled_from(policy: Policy) -> str:
    return f"{policy.model.sha256}+{policy.adapter}@{policy.step}" if policy.step else policy.model.sha256


def recipe_row(ref: str, arguments: Mapping[str, Any]) -> Row:
    """How a `training` artifact was trained, from its recipe."""
    learner = restored(LearnerConfig, arguments["learner"])
    return {"arm": restored(Policy, arguments["start"]).arm, "settings": settings(learner), "place": ref}


def settings(learner: LearnerConfig) -> list[str]:
    """Every setting but the seed, as text.

    >>> learner = LearnerConfig(steps=2, groups_per_step=1, group_size=4, learning_rate=1e-3, lora_rank=8, lora_alpha=8)
    >>> [line for line in settings(learner) if line[:2] in ("be", "gr", "lo")]  # doctest: +NORMALIZE_WHITESPACE
    ['betas=0.9, 0.95', 'grad_clip=none', 'group_size=4', 'groups_per_step=1', 'lora_alpha=8', 'lora_rank=8',
     'loss=importance_sampling']
    """

    def text(value: Any) -> str:
        if isinstance(value, tuple):
            return ", ".join(map(text, value))
        return "none" if value is None else value if isinstance(value, str) else f"{value:g}"

    return sorted(f"{f.name}={text(getattr(learner, f.name))}" for f in fields(learner) if f.name != "seed")


def filled(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Every table that a lint reads, empty where there is none."""
    return {name: tables.get(name, schema.empty_table()) for name, schema in TABLES.items()}


def rows_as(name: str, rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=TABLES[name])


def trained_on(training: Ref, pool: pa.Table, splits: pa.Table) -> pa.Table:
    """(arm, source, problem_id) of what a training drew from: its bands' variance band outside held-out."""
    recipe = store().manifest(training).recipe
    arm = store().read(training, ["arm"])["arm"][0].as_py()
    bands = recipe.inputs.get("bands")
    if bands:
        live = store().read(Ref.parse(bands[0]), ["problem_id", "source", "band"])
    else:
        live = query("select problem_id, source, $band as band from pool", {"band": Band.VARIANCE}, pool=pool)
    return query(
        """
        select $arm as arm, source, problem_id from live semi join (from splits where split = 'train')
        using (problem_id) where is_variance(band)
        """,
        {"arm": arm},
        live=live,
        splits=splits,
    )


def lints() -> list[str]:
    """Names of the lint queries, sorted."""
    return sorted(path.stem for path in QUERIES.glob("lint_*.sql"))


def findings_of(tables: Mapping[str, pa.Table]) -> pa.Table:
    """What every lint finds in these tables (tasks.designs.TABLES; an absent one is empty).

    Columns: code; fact: what the rows show; inference: what may follow from it; place: runs or files; value: its size,
    null where it has none; query: which named query shows it.
    """
    everything, parts = filled(tables), []
    for name in lints():
        found = query(named(name), **everything)
        parts.append(found.append_column("query", pa.array([name] * found.num_rows, pa.string())).cast(Audit.schema))
    return pa.concat_tables(parts)


def leak_rows(pool: pa.Table, splits: pa.Table, trains: Mapping[str, str], place: str) -> list[Row]:
    """Near-duplicates of held-out problems among the others. `trains`: problem → which arms train on it."""
    sides = "from pool {} join (from splits where split = 'heldout') using (problem_id) order by problem_id"
    wanted = pool.select(["problem_id", "source_id", "problem"])
    held, others = (query(sides.format(how), pool=wanted, splits=splits) for how in ("semi", "anti"))
    found = find_leaks(held, others, "heldout", "train")
    return [
        {
            "source_id": r["source_id"],
            "other_source_id": r["other_source_id"],
            "similarity": r["similarity"],
            "kind": r["kind"],
            "trains": trains.get(r["other_id"]),
            "place": place,
        }
        for r in found.to_pylist()
    ]


def lesson_leak_rows(held: pa.Table, lesson: pa.Table, splits: pa.Table, place: str) -> list[Row]:
    """Held-out problems of the study that stand in a lesson's pool, taught or left out. held, lesson: problem_id,
    source_id, problem."""
    sides = {row["problem_id"]: row["split"] for row in splits.to_pylist()}
    others = lesson.filter(pa.array([sides[p] in ("train", "near_heldout") for p in lesson["problem_id"].to_pylist()]))
    return [
        {name: r[name] for name in ("source_id", "other_source_id", "similarity", "kind")}
        | {"trains": None if sides[r["other_id"]] == "train" else "left out of the lesson", "place": place}
        for r in find_leaks(held, others, "heldout", "lesson").to_pylist()
    ]


def mislabelled_rows(arm: str, counts: Sequence[tuple[int, int]], group_size: int) -> list[Row]:
    """Dead groups of a screening that the training's group size is expected to make live."""
    found = [r for r in expectations(counts, group_size) if r["metric"] == "mislabelled" and r.get("band") is None]
    return [{"arm": arm, "count": r["count"], "n": r["n"], "share": r["estimate"]} for r in found if r.get("count")]
