"""Designs: one row on how each run was made, and the checks that compare runs (`lint_*.sql`)."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa

from storage.artifacts.fingerprint import restored
from storage.artifacts.manifest import Recipe
from storage.artifacts.ref import Ref
from storage.artifacts.rows import nullable
from storage.artifacts.schemas import Audit, Designs
from storage.estimates import Band
from storage.sql import QUERIES, named, query
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.rewards import RewardTerm
from tasks.domain.policies import Policy, Sampling
from tasks.domain.problems.duplicates import find_leaks
from tasks.domain.statistics.difficulty import expectations
from tasks.stage import store

Row = dict[str, Any]

#: Input tables of the checks. `place` names the run or file that a row is about.
TABLES: dict[str, pa.Schema] = {
    "designs": Designs.schema,
    # printed p-values, and those of the statistic under Student's t and the normal distribution
    "tests": nullable("test str, t real, n big, p_printed real, p_t real, p_normal real, place str"),
    # share of the traces that an encoder saw, by arm: `measured`, or estimated from mean `lengths`
    "coverage": nullable("arm str, problems str, window str, coverage real, basis str, place str"),
    # a figure that is attributed to one set of problems, with its value there and on another set
    "reference_figures": nullable(
        "figure str, claimed real, on str, value real, elsewhere str, value_elsewhere real, place str"
    ),
    # near-duplicates between training and held-out problems
    "leaks": nullable("source_id str, other_source_id str, similarity real, kind str, trains str, place str"),
    # problems whose group is dead at the screening's size, and how many should be live at the training's size
    "mislabelled": nullable("arm str, count big, n big, share real"),
    # intervals that were printed over rollouts, and the interval over problems
    "printed_intervals": nullable(
        "figure str, n big, problems big, low real, high real, low_problems real, high_problems real, place str"
    ),
    # diversity by policy, for comparison with the controls; `same_as`: another window with the same figures
    "diversity_measures": nullable(
        "arm str, problems str, window str, diversity real, share_correct real, same_as str, largest_change real",
        "place str",
    ),
    # how each arm was trained: `name=value` of every setting but the seed
    "recipes": nullable("arm str, place str").append(pa.field("settings", pa.list_(pa.string()))),
    # shares of an arm's rollouts without the requested form
    "form": nullable(
        "arm str, problems str, rollouts big, no_answer real, invalid_tags real, truncated real, place str"
    ),
    # requested and executed steps of trainings; stopped_at, resumed_from: null if there was no interruption
    "stops": nullable("run str, requested big, executed big, stopped_at big, resumed_from big, reason str, place str"),
    # remarks in a run log
    "notes": nullable("code str, said str, place str"),
    # the change of a series since its first point, with and without its last point
    "trends": nullable(
        "series str, first_step big, before_step big, last_step big, change real, change_without_last real, slope real",
        "slope_without_last real, place str",
    ),
    # two arms at about the same number of tokens per problem, in whole rollouts
    "equal_tokens": nullable(
        "arm str, other str, problems str, k big, other_k big, estimate real, other_estimate real, tokens real",
        "other_tokens real, place str",
    ),
    # number of evaluated problems that are in a training pool
    "evaluated": nullable("problems str, n big, pool str, count big, place str"),
    # by source: a training's problems and sampled groups, and their totals
    "exposed": nullable("arm str, source str, problems big, all_problems big, groups big, all_groups big, place str"),
}


def from_training(ref: str, recipe: Recipe, problems: str, seeds: int, last_evaluated: int | None) -> Row:
    """Return the design of a `training` artifact, as its recipe gives it."""
    start, learner = restored(Policy, recipe.arguments["start"]), restored(LearnerConfig, recipe.arguments["learner"])
    rollouts = restored(Sampling, recipe.arguments["rollouts"])
    return design(ref, "training", start, rollouts, problems, learner.group_size) | {
        "top_p": rollouts.top_p,
        "learned_at": rollouts.temperature,
        "steps": learner.steps,
        "seeds": seeds,
        "last_evaluated": last_evaluated,
    }


def design(ref: str, role: str, policy: Policy, sampling: Sampling, problems: str, group_size: int) -> Row:
    base = policy.model.sha256
    return {
        "run": ref,
        "role": role,
        "family": role,
        "arm": policy.arm,
        "model": f"{policy.model.name} ({base[:12]})".strip(),
        "policy": f"{base}+{policy.adapter}@{policy.step}" if policy.step else base,
        "problems": problems,
        "group_size": group_size,
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "place": ref,
    }


def recipe_row(ref: str, arguments: Mapping[str, Any]) -> Row:
    """Return the settings of a `training` artifact, as its recipe gives them."""
    learner = restored(LearnerConfig, arguments["learner"])
    return {"arm": restored(Policy, arguments["start"]).arm, "settings": settings(learner), "place": ref}


def settings(learner: LearnerConfig) -> list[str]:
    """Return every setting but the seed, as text.

    >>> learner = LearnerConfig(steps=2, groups_per_step=1, group_size=4, learning_rate=1e-3, lora_rank=8, lora_alpha=8)
    >>> [line for line in settings(learner) if line[:2] in ("be", "gr", "lo")]  # doctest: +NORMALIZE_WHITESPACE
    ['betas=0.9, 0.95', 'grad_clip=none', 'group_size=4', 'groups_per_step=1', 'lora_alpha=8', 'lora_rank=8',
     'loss=importance_sampling']
    """

    def text(value: Any) -> str:
        if isinstance(value, tuple):
            return ", ".join(map(text, value))
        if isinstance(value, RewardTerm):
            judge = f" by {value.model[:19]}: {value.rubric or 'default rubric'}" if value.model else ""
            return f"{value.weight:g} {value.name}{judge}"
        return "none" if value is None else value if isinstance(value, str) else f"{value:g}"

    return sorted(f"{f.name}={text(getattr(learner, f.name))}" for f in fields(learner) if f.name != "seed")


def trained_on(training: Ref, pool: pa.Table, splits: pa.Table) -> pa.Table:
    """Return (arm, source, problem_id) of the problems of a training: its variance band without held-out problems."""
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


def findings_of(rows: Mapping[str, Sequence[Row]]) -> pa.Table:
    """Return the findings of all checks on rows of TABLES; a missing table is empty. Columns: code; fact: what the rows
    show; inference: a possible consequence; place: runs or files; value: size, or null; query: the named query."""
    tables = {name: pa.Table.from_pylist(list(rows.get(name, ())), schema=schema) for name, schema in TABLES.items()}
    parts = []
    for name in sorted(path.stem for path in QUERIES.glob("lint_*.sql")):
        found = query(named(name), **tables)
        parts.append(found.append_column("query", pa.array([name] * found.num_rows, pa.string())).cast(Audit.schema))
    return pa.concat_tables(parts)


def leak_rows(held: pa.Table, others: pa.Table, trains: Mapping[str, str], place: str) -> list[Row]:
    """Return near-duplicates of held-out problems among the others. `trains`: problem → arms that train on it."""
    found = find_leaks(held, others, "heldout", "train").to_pylist()
    return [r | {"trains": trains.get(r["other_id"]), "place": place} for r in found]


def sides_of(pool: pa.Table, splits: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the held-out problems of a pool, and the others. Columns: problem_id, source_id, problem."""
    sides = "from pool {} join (from splits where split = 'heldout') using (problem_id) order by problem_id"
    wanted = pool.select(["problem_id", "source_id", "problem"])
    held, others = (query(sides.format(how), pool=wanted, splits=splits) for how in ("semi", "anti"))
    return held, others


def lesson_leak_rows(held: pa.Table, lesson: pa.Table, splits: pa.Table, place: str) -> list[Row]:
    """Return the study's held-out problems that occur in a lesson's pool, whether or not the lesson trained on them.
    held, lesson: problem_id, source_id, problem."""
    sides = dict(zip(splits["problem_id"].to_pylist(), splits["split"].to_pylist(), strict=True))
    others = lesson.filter(pa.array([sides[p] in ("train", "near_heldout") for p in lesson["problem_id"].to_pylist()]))
    untaught = {problem: "left out of the lesson" for problem, side in sides.items() if side != "train"}
    return leak_rows(held, others, untaught, place)


def mislabelled_rows(arm: str, counts: Sequence[tuple[int, int]], group_size: int) -> list[Row]:
    """Return the screening's groups that had one outcome and should have both at the training's group size."""
    found = [r for r in expectations(counts, group_size) if r["metric"] == "mislabelled" and r.get("band") is None]
    return [{"arm": arm, "count": r["count"], "n": r["n"], "share": r["estimate"]} for r in found if r.get("count")]
