"""Stages that import the published study as artifacts of kinds that other stages read.

Missing data are null. Names are translated here: `uid` is a problem, `variance_band` is `variance`, a `batch` is the
number of earlier updates. The length columns of the diversity files, called characters in the write-up, are tokens:
their AIME means equal the completion-token means of the token table to the last digit. A recipe has the digests of its
files, so a changed file makes another artifact.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from storage.artifacts.fingerprint import restored
from storage.artifacts.schemas import (
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
from storage.errors import UserError
from storage.sql import answer, connect, query
from tasks.designs import findings_of, leak_rows, mislabelled_rows
from tasks.domain.statistics.paired_tests import family_of_gain, in_families, mcnemar_exact
from tasks.domain.statistics.shares import share_interval
from tasks.published import checks
from tasks.stage import Payload, Ref, stage, store, toolbox

# The designs of the published runs.


Row = dict[str, Any]
LOG = "data/multipersona_gsm8k/manifest.json"
MATH500, LEVEL5, AIME = "MATH-500 L1-L5, 50", "MATH-500 L5", "AIME 2024+2025, 20"
#: evaluation folder → (arm, problem set)
EVALUATIONS = {
    "eval_math500_vibecheck/math_final_panel": ("panel", MATH500),
    "eval_math500_vibecheck/thinking_native": ("thinking", MATH500),
    "eval_math500_vibecheck/math_final_no_panel": ("no_panel", MATH500),
    "eval_math500_vibecheck/final_panel": ("panel_premath", MATH500),
    "eval_math500_vibecheck/final_no_panel": ("no_panel_premath", MATH500),
    "eval_math500_vibecheck/instruct_native": ("instruct", MATH500),
    "eval_math500_vibecheck/panel_l5_full": ("panel", LEVEL5),
    "eval_math500_vibecheck/thinking_l5_full": ("thinking", LEVEL5),
    "eval_aime_vibecheck/aime_panel_postmath_n16": ("panel", AIME),
    "eval_aime_vibecheck/aime_thinking_n16": ("thinking", AIME),
    "eval_aime_vibecheck/final_panel": ("panel_premath", AIME),
    "eval_aime_vibecheck/final_no_panel": ("no_panel_premath", AIME),
}
#: The arms that the write-up compares; the others are controls.
COMPARED = ("panel", "thinking")
GSM8K = ("step000060", "step000070", "step000080", "stepFinal_batch128")
#: Column of Designs → fields of a summary that may state it; the first one present is used.
STATED = {
    "model": ("model_name", "base_model"),
    "policy": ("sampler_path", "checkpoint", "base_model"),
    "num_problems": ("n_problems", "n_evaluated"),
    "planned_problems": ("n_test_requested",),
    "group_size": ("n_samples_per_problem",),
    "temperature": ("temperature",),
    "max_tokens": ("max_tokens",),
}


def parsed(path: Path) -> Any:
    """Return the value of a JSON file, or the values of a JSON Lines file. Errors: UserError naming the file."""
    try:
        text = path.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not the published file: {error}") from None


def designs(root: Path) -> pa.Table:
    """Return the designs. Schema: Designs. Fields missing in a summary are taken from the run log, else null."""
    log = parsed(root / LOG)
    limits = _limits(log.get("post_math_panel", {}))
    sampled = [
        (f"variance_band/{arm}_g8", f"{arm}_g8", "screening", "screening", arm, "olympiad pool") for arm in COMPARED
    ]
    for folder, (arm, problems) in EVALUATIONS.items():
        family = problems if arm in COMPARED else f"control {folder}"
        run = folder.removeprefix("eval_").replace("_vibecheck/", " ")
        sampled.append((folder, run, "evaluation", family, arm, problems))
    sampled += [
        (f"eval_gsm8k/{tag}", f"gsm8k {tag}", "evaluation", f"GSM8K at {tag}", "panel_premath", "GSM8K test, 500")
        for tag in GSM8K
    ]
    rows = []
    for folder, *about in sampled:
        summary = parsed(root / "reports" / folder / "summary.json")
        row = {column: next((summary[f] for f in fields if summary.get(f)), None) for column, fields in STATED.items()}
        row |= zip(("run", "role", "family", "arm", "problems"), about, strict=True)
        row["max_tokens"] = row["max_tokens"] or limits.get(summary["tag"])
        row["group_size"] = row["group_size"] or 1
        rows.append(row | {"place": f"reports/{folder}/summary.json"})
    return pa.Table.from_pylist([*rows, *_training(root, log)], schema=Designs.schema)


def _limits(node: object) -> dict[str, int]:
    """Return max_tokens by run tag, from the run log."""
    if not isinstance(node, dict):
        return {}
    own = {str(node["tag"]): int(node["max_tokens"])} if {"tag", "max_tokens"} <= node.keys() else {}
    return own | {tag: limit for child in node.values() for tag, limit in _limits(child).items()}


def _training(root: Path, log: Row) -> list[Row]:
    """Return the training on the olympiad pool, and its evaluations on the held-out problems."""
    folder = "reports/olympiad_panel_only"
    config = parsed(root / folder / "summary.json")["config"]
    pools = parsed(root / "data/olympiad_pool/split_summary.json")
    shared = {name: config[name] for name in ("model", "temperature", "max_tokens")} | {
        "arm": "panel",
        "policy": log["post_math_panel"]["checkpoint"]["sampler_path"],
        "place": f"{folder}/summary.json",
    }
    training = {
        "run": "panel_olympiad",
        "role": "training",
        "family": "training",
        "seeds": 1,
        "problems": "panel_train",
        "num_problems": pools["panel_train"]["n"],
        "group_size": config["group_size"],
        "steps": config["max_steps"],
        "last_evaluated": max(row["batch"] for row in parsed(root / folder / "heldout_trajectory.jsonl")),
    }
    heldout = {
        "run": "panel_olympiad held-out",
        "role": "heldout",
        "family": "held-out",
        "problems": "heldout_eval",
        "num_problems": pools["heldout_eval"]["n"],
        "group_size": 1,
    }
    return [shared | training, shared | heldout]


DRAWS = 10_000


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file by content; `path` is relative to the published folder."""

    path: str
    sha256: str

    def here(self) -> Path:
        return toolbox().place(self.sha256, f"the published file {self.path}")


@dataclass(frozen=True, slots=True)
class PublishedFolder:
    """The whole published folder by content: a digest over all its files."""

    sha256: str

    def here(self) -> Path:
        return toolbox().place(self.sha256, "the published folder")


def read(path: Path, sql: str, schema: pa.Schema, **given: object) -> pa.Table:
    """Run a statement over one JSON file, `$path`, and return its rows in a schema; missing columns are null. Errors:
    UserError naming the file if it is not JSON, lacks a field, or has a problem twice."""
    connection = connect(threads=1, reads=[path])
    try:
        found = answer(connection, sql, {"path": str(path), **given})
        there = set(found.column_names)
        columns = [found[f.name].cast(f.type) if f.name in there else pa.nulls(len(found), f.type) for f in schema]
    except (duckdb.Error, pa.ArrowException) as error:
        raise UserError(f"{path.name}: not the published file: {str(error).splitlines()[0][:200]}") from None
    finally:
        connection.close()
    made = pa.table(columns, schema=schema)
    if "problem_id" in schema.names and len(made["problem_id"].unique()) != len(made):
        raise UserError(f"{path.name}: the same problem occurs twice")
    return made


def imported(rows: pa.Table) -> Payload:
    return Payload(rows, notes={"provenance": "imported"})


@stage(Bands, version=1)
def import_bands(*, file: PublishedFile, arm: str) -> Payload:
    """Import variance_band/*/per_problem.jsonl. Bands are recomputed; a different stated band is an error."""
    sql = """
        select uid as problem_id, source, $arm as arm, n_samples as group_size, n_correct as num_correct,
            if(replace(stated, '_band', '') = found, found,
               error(uid || ' has ' || n_correct || ' of ' || n_samples || ' correct but is called ' || stated)) as band
        from (select * exclude (band), band as stated, band(n_correct, n_samples) as found from read_json_auto($path))
    """
    return imported(read(file.here(), sql, Bands.schema, arm=arm))


@stage(Groups, version=1)
def import_groups(*, file: PublishedFile, arm: str) -> Payload:
    """Import `per_problem` of an evaluation's summary.json; source: `L1`…`L5` or the AIME year."""
    sql = """
        select $arm as arm, 0 as step, $adapter as adapter, 0 as seed,
            (r ->> 'n_samples')::int as group_size, (r ->> 'n_correct')::int as num_correct,
            coalesce('AIME ' || (r ->> 'year'), 'L' || (r ->> 'level')) as source,
            coalesce('aime' || (r ->> 'year') || '_' || (r ->> 'problem_idx'), r ->> 'unique_id') as problem_id
        from (select unnest(per_problem) as r from read_json($path, columns = {per_problem: 'JSON[]'}))
    """
    return imported(read(file.here(), sql, Groups.schema, arm=arm, adapter=file.path))


@stage(Diversity, version=2)
def import_diversity(*, file: PublishedFile, label: str, arm: str, window: str) -> Payload:
    """Import one variant of a diversity file."""
    sql = """
        select uid as problem_id, if(level = '?', 'AIME ' || uid[5:8], 'L' || level) as source, $arm as arm, 0 as step,
            0 as seed, $window as "window", n_samples as n, n_correct as num_correct, mean_pairwise_dist as diversity,
            emb_variance_trace * n_samples / (n_samples - 1) as spread, distinct_strategies as clusters,
            len_mean as num_tokens, len_cv as length_cv, n_correct / n_samples as share_correct,
            1000 * mean_pairwise_dist / len_mean as per_1000_tokens
        from read_json_auto($path) where label = $label
    """
    made = read(file.here(), sql, Diversity.schema, label=label, arm=arm, window=window)
    if made.num_rows == 0:
        raise UserError(f"{file.path}: no rows labelled {label}")
    return imported(made)


@stage(TrainingPools, version=1)
def import_pools(*, files: tuple[PublishedFile, ...]) -> Payload:
    """Import the problems of each published pool (a problem may be in both training pools)."""
    sql = "select $name as pool, uid as problem_id, source from read_json_auto($path)"
    parts = [read(f.here(), sql, TrainingPools.schema, name=Path(f.path).stem) for f in files]
    return imported(pa.concat_tables(parts))


def problems_of(files: Iterable[PublishedFile]) -> pa.Table:
    """Return the problems with a published text, each once. Schema: Pool."""
    sql = """
        select uid as problem_id, source, uid as source_id, problem, gold, gold as gold_raw, answer_type,
            uid as cluster, year
        from read_json_auto($path)
    """
    every = pa.concat_tables(read(file.here(), sql, Pool.schema) for file in files)
    first: dict[str, int] = {}
    for place, problem in enumerate(every["problem_id"].to_pylist()):
        first.setdefault(problem, place)
    return every.take(list(first.values()))


@stage(Pool, version=1)
def import_pool(*, files: tuple[PublishedFile, ...]) -> Payload:
    """Import the problems with their published ids, without checking the golds again."""
    return imported(problems_of(files))


@stage(Splits, version=1)
def import_splits(*, heldout: PublishedFile, others: tuple[PublishedFile, ...]) -> Payload:
    """Import the split: the evaluation problems are held out, all others are not."""
    sql = """
        select problem_id, source, if(problem_id in (select problem_id from held), 'heldout', 'train') as split
        from every
    """
    split = query(sql, held=problems_of([heldout]), every=problems_of([heldout, *others]))
    return imported(split.cast(Splits.schema))


STEP_METRICS = {
    "correct": "correct_mean",
    "reward": "reward_mean",
    "tag_valid": "tag_valid_mean",
    "ac_tokens_per_turn": "length_mean",
    "frac_mixed": "live_groups",
    "frac_all_bad": "all_zero_share",
    "frac_all_good": "all_one_share",
    "entropy": "entropy",
}


@stage(TrainingSeries, version=1)
def import_series(*, steps: PublishedFile, spread: PublishedFile) -> Payload:
    """Import the training's metrics in long form; n: rollouts of the step."""
    long = ", ".join(f"{{metric: '{name}', value: {field}::double}}" for field, name in STEP_METRICS.items())
    per_step = f"""
        select 'panel' as arm, step, one.metric, one.value
        from (select batch as step, unnest([{long}]) as one from read_json_auto($path))
    """
    lengths = """
        select 'panel' as arm, batch as step, 'length_cv_within' as metric, ac_len_cv_within_group as value,
            n_rollouts as n
        from read_json_auto($path)
    """
    parts = [(steps, per_step), (spread, lengths)]
    return imported(pa.concat_tables([read(file.here(), sql, TrainingSeries.schema) for file, sql in parts]))


# Gains for which only the two shares are known: intervals, and the possible range of paired p-values.


def paired_p_range(x: int, y: int, n: int) -> tuple[float | None, float | None]:
    """Return the smallest and largest exact McNemar p of a change from x to y correct among the same n problems, over
    all pairings of the unpublished outcomes.

    >>> low, high = paired_p_range(14, 29, 100); round(low, 6), round(high, 4)
    (6.1e-05, 0.0315)
    """
    most_lost = min(x, n - y)
    values = [mcnemar_exact(lost + y - x, lost) for lost in range(max(0, x - y), most_lost + 1)]
    known = [v for v in values if v is not None]
    return (min(known), max(known)) if known else (None, None)


def trajectory_rows(rows: Sequence[Row], arm: str, sizes: Mapping[str, int], trained: Mapping[str, int]) -> list[Row]:
    """Return rows of Curves: `heldout` with Wilson's interval, one rollout per problem; `gain`, last step minus first.
    The gain has Newcombe's interval of independent samples (too wide for paired problems) and the largest p-value of
    any pairing."""
    from statsmodels.stats.proportion import confint_proportions_2indep

    sizes = {"all": sum(sizes.values()), **sizes}
    found: list[Row] = []
    shares = {row["batch"]: {"all": row["heldout_mean"], **row["by_source"]} for row in rows}
    for step, by_source in shares.items():
        for source, share in by_source.items():
            n = sizes[source]
            interval = share_interval(round(share * n), n)
            assert interval is not None
            about = {"series": "heldout", "step": step, "source": source, "estimate": share, "n": n}
            found.append(about | {"low": interval.low, "high": interval.high, "method": "wilson"})
    first, last = min(shares), max(shares)
    for source, n in sizes.items():
        x, y = (round(n * shares[step][source]) for step in (first, last))
        low, high = confint_proportions_2indep(y, n, x, n, method="newcomb")
        smallest, largest = paired_p_range(x, y, n)
        range_of_p = f"McNemar p between {smallest:.2g} and {largest:.2g}" if smallest is not None else ""
        found.append(
            {
                "series": "gain",
                "step": last,
                "source": source,
                "estimate": (y - x) / n,
                "low": low,
                "high": high,
                "p_value": largest,
                "n": n,
                "method": "newcombe; p: largest exact McNemar of any pairing",
                "training_share": 1.0 if source == "all" else trained.get(source, 0) / sum(trained.values()),
                "reason": f"outcomes per problem are not published: {range_of_p}" if range_of_p else "no change",
            }
        )
    shared = {"arm": arm, "metric": "pass@1", "seeds": 1}
    return in_families([row | shared | {"rollouts": row["n"]} for row in found], family_of_gain)


@stage(Curves, version=3)
def import_trajectory(*, trajectory: PublishedFile, pools: TrainingPools) -> Payload:
    """Import held-out accuracy by step: Wilson intervals from the printed shares; gains with bounds over all
    pairings."""

    def counts(pool: str) -> dict[str, int]:
        sql = "select source, count(*) as n from t where pool = $pool group by source"
        return {row["source"]: row["n"] for row in query(sql, {"pool": pool}, t=store().read(pools)).to_pylist()}

    rows = trajectory_rows(parsed(trajectory.here()), "panel", counts("heldout_eval"), counts("panel_train"))
    return imported(pa.Table.from_pylist(rows, schema=Curves.schema))


@stage(TokenChecks, version=1)
def check_tokens(*, tokens: PublishedFile, math: tuple[Groups, Groups], aime: tuple[Groups, Groups]) -> Payload:
    """Check the token table. math, aime: groups of panel and thinking on its two benchmarks."""
    summary, rows = parsed(tokens.here()), []
    for name, refs in (("math", math), ("aime", aime)):
        groups = [store().read(ref).to_pydict() for ref in refs]
        correct = {arm: sum(g["num_correct"]) for arm, g in zip(("panel", "thinking"), groups, strict=True)}
        pairs = sum(min(a, b) for a, b in zip(*(g["group_size"] for g in groups), strict=True))
        rows += checks.token_checks(name, summary[name], correct, pairs)
    return imported(pa.Table.from_pylist(rows, schema=TokenChecks.schema))


@stage(Designs, version=3)
def import_designs(*, folder: PublishedFolder) -> Payload:
    return imported(designs(folder.here()))


def by_folder(refs: tuple[Ref, ...], depth: int) -> dict[str, pa.Table]:
    """Return imported artifacts by the folder below `reports/` of their file."""
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
    """Return the design faults of the published study. Schema: AUDIT. diversities, evaluations: imported from the
    folders in `diversity_folders` and `evaluation_folders`."""
    root = folder.here()
    screened = pa.concat_tables([store().read(ref) for ref in bands])
    measured, evaluated = by_folder(diversities, 1), by_folder(evaluations, 2)
    in_pools = store().read(pools)
    sql = """
        select problem_id, 'it is in ' || string_agg(pool, ' and ' order by pool) as trained
        from t where pool <> 'heldout_eval' group by problem_id
    """
    trains = {row["problem_id"]: row["trained"] for row in query(sql, t=in_pools).to_pylist()}
    counts = [
        (arm, [(r["group_size"], r["num_correct"]) for r in screened.to_pylist() if r["arm"] == arm])
        for arm in sorted(set(screened["arm"].to_pylist()))
    ]
    tokens = parsed(root / "reports/token_efficiency/summary.json")
    return findings_of(
        {
            "designs": checks.with_truncation(store().read(designs).to_pylist(), tokens),
            "tests": checks.test_rows(root),
            "coverage": checks.diversity_rows(measured),
            "reference_figures": checks.reference_rows(screened, store().read(splits)),
            "leaks": leak_rows(store().read(pool), store().read(splits), trains, "data/olympiad_pool"),
            "mislabelled": [row for arm, c in counts for row in mislabelled_rows(arm, c, train_group_size)],
            "printed_intervals": checks.interval_rows(root, evaluated, DRAWS, 0),
            "diversity_measures": checks.diversity_rows(measured),
            "stops": checks.stop_rows(root),
            "notes": checks.note_rows(root),
            "trends": checks.trend_rows(root),
            "evaluated": checks.evaluated_rows(evaluated, in_pools),
            "equal_tokens": checks.equal_token_rows(evaluated, measured),
        }
    )
