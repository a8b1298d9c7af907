"""Stages that import the published study, as artifacts of kinds that other stages read.

Missing data is null. Names are translated: `uid` is a problem, `variance_band` is `variance`, and a `batch` is the
number of earlier updates. The publication calls the length columns of its diversity files characters, but they are
tokens: their AIME means equal the completion-token means of the table of tokens to the last digit. A recipe has the
digests of its files, so a changed file makes another artifact.
"""

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
from tasks.designs import findings_of, leak_rows, mislabelled_rows, sides_of
from tasks.domain.statistics.paired_tests import family_of_gain, in_families, mcnemar_exact
from tasks.domain.statistics.shares import share_interval
from tasks.published import checks
from tasks.published.checks import parsed
from tasks.stage import Ref, stage, store, toolbox

Row = dict[str, Any]
DRAWS = 10_000


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file, identified by its content. `path` is relative to the published folder."""

    path: str
    sha256: str

    def here(self) -> Path:
        return toolbox().place(self.sha256, f"the published file {self.path}")


@dataclass(frozen=True, slots=True)
class PublishedFolder:
    """The published folder, identified by a digest over all its files."""

    sha256: str

    def here(self) -> Path:
        return toolbox().place(self.sha256, "the published folder")


def read(path: Path, sql: str, schema: pa.Schema, **given: object) -> pa.Table:
    """Run a statement over one JSON file, `$path`, and return its rows in a schema, null for missing columns. Raise
    UserError with the file's name if it is not JSON, lacks a field, or has a problem twice."""
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


@stage(Bands, version=1)
def import_bands(*, file: PublishedFile, arm: str) -> pa.Table:
    """Import variance_band/*/per_problem.jsonl. Raise an error if a published band contradicts its counts."""
    sql = """
        select uid as problem_id, source, $arm as arm, n_samples as group_size, n_correct as num_correct,
            if(replace(stated, '_band', '') = found, found,
               error(uid || ' has ' || n_correct || ' of ' || n_samples || ' correct but is called ' || stated)) as band
        from (select * exclude (band), band as stated, band(n_correct, n_samples) as found from read_json_auto($path))
    """
    return read(file.here(), sql, Bands.schema, arm=arm)


@stage(Groups, version=1)
def import_groups(*, file: PublishedFile, arm: str) -> pa.Table:
    """Import `per_problem` of an evaluation's summary.json. source: `L1`…`L5`, or the year of AIME."""
    sql = """
        select $arm as arm, 0 as step, $adapter as adapter, 0 as seed,
            (r ->> 'n_samples')::int as group_size, (r ->> 'n_correct')::int as num_correct,
            coalesce('AIME ' || (r ->> 'year'), 'L' || (r ->> 'level')) as source,
            coalesce('aime' || (r ->> 'year') || '_' || (r ->> 'problem_idx'), r ->> 'unique_id') as problem_id
        from (select unnest(per_problem) as r from read_json($path, columns = {per_problem: 'JSON[]'}))
    """
    return read(file.here(), sql, Groups.schema, arm=arm, adapter=file.path)


@stage(Diversity, version=2)
def import_diversity(*, file: PublishedFile, label: str, arm: str, window: str) -> pa.Table:
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
    return made


@stage(TrainingPools, version=1)
def import_pools(*, files: tuple[PublishedFile, ...]) -> pa.Table:
    """Import the problems of each published pool. A problem may be in both training pools."""
    sql = "select $name as pool, uid as problem_id, source from read_json_auto($path)"
    parts = [read(f.here(), sql, TrainingPools.schema, name=Path(f.path).stem) for f in files]
    return pa.concat_tables(parts)


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
def import_pool(*, files: tuple[PublishedFile, ...]) -> pa.Table:
    """Import the problems with their published ids. The golds are not checked again."""
    return problems_of(files)


@stage(Splits, version=1)
def import_splits(*, heldout: PublishedFile, others: tuple[PublishedFile, ...]) -> pa.Table:
    """Import the split: the evaluation problems are held out, all others are not."""
    sql = """
        select problem_id, source, if(problem_id in (select problem_id from held), 'heldout', 'train') as split
        from every
    """
    split = query(sql, held=problems_of([heldout]), every=problems_of([heldout, *others]))
    return split.cast(Splits.schema)


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
def import_series(*, steps: PublishedFile, spread: PublishedFile) -> pa.Table:
    """Import the metrics of the training as one long table. n: rollouts of the step."""
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
    return pa.concat_tables([read(file.here(), sql, TrainingSeries.schema) for file, sql in parts])


# ---- gains of which only the two shares are known: intervals, and the possible range of paired p-values


def paired_p_range(x: int, y: int, n: int) -> tuple[float | None, float | None]:
    """Return the smallest and largest exact McNemar p, over all pairings, for x of n problems correct before and y
    after.

    >>> low, high = paired_p_range(14, 29, 100); round(low, 6), round(high, 4)
    (6.1e-05, 0.0315)
    """
    most_lost = min(x, n - y)
    values = [mcnemar_exact(lost + y - x, lost) for lost in range(max(0, x - y), most_lost + 1)]
    known = [v for v in values if v is not None]
    return (min(known), max(known)) if known else (None, None)


def trajectory_rows(rows: Sequence[Row], arm: str, sizes: Mapping[str, int], trained: Mapping[str, int]) -> list[Row]:
    """Return rows of Curves: `heldout` with Wilson's interval, one rollout per problem, and `gain`, last step minus
    first. The gain has Newcombe's interval for independent samples, which is too wide for paired problems, and the
    largest p of any pairing."""
    from statsmodels.stats.proportion import confint_proportions_2indep

    sizes = {"all": sum(sizes.values()), **sizes}
    found: list[Row] = []
    shares = {row["batch"]: {"all": row["heldout_mean"], **row["by_source"]} for row in rows}
    for step, by_source in shares.items():
        for source, share in by_source.items():
            n = sizes[source]
            low, high = share_interval(round(share * n), n)
            about = {"series": "heldout", "step": step, "source": source, "estimate": share, "n": n}
            found.append(about | {"low": low, "high": high, "method": "wilson"})
    first, last = min(shares), max(shares)
    for source, n in sizes.items():
        x, y = (round(n * shares[step][source]) for step in (first, last))
        low, high = confint_proportions_2indep(y, n, x, n, method="newcomb")
        smallest, largest = paired_p_range(x, y, n)
        range_of_p = f"McNemar p between {smallest:.2g} and {largest:.2g}" if smallest is not None else ""
        row = {"series": "gain", "step": last, "source": source, "estimate": (y - x) / n, "low": low, "high": high}
        row |= {"n": n}
        row |= {"p_value": largest, "method": "newcombe; p: largest exact McNemar of any pairing"}
        row["training_share"] = 1.0 if source == "all" else trained.get(source, 0) / sum(trained.values())
        row["reason"] = f"outcomes per problem are not published: {range_of_p}" if range_of_p else "no change"
        found.append(row)
    shared = {"arm": arm, "metric": "pass@1", "seeds": 1}
    return in_families([row | shared | {"rollouts": row["n"]} for row in found], family_of_gain)


@stage(Curves, version=3)
def import_trajectory(*, trajectory: PublishedFile, pools: TrainingPools) -> pa.Table:
    """Import held-out accuracy by step (Wilson intervals of printed shares) and gains (bounds over all pairings)."""

    def counts(pool: str) -> dict[str, int]:
        sql = "select source, count(*) as n from t where pool = $pool group by source"
        return {row["source"]: row["n"] for row in query(sql, {"pool": pool}, t=store().read(pools)).to_pylist()}

    rows = trajectory_rows(parsed(trajectory.here()), "panel", counts("heldout_eval"), counts("panel_train"))
    return pa.Table.from_pylist(rows, schema=Curves.schema)


@stage(TokenChecks, version=1)
def check_tokens(*, tokens: PublishedFile, math: tuple[Groups, Groups], aime: tuple[Groups, Groups]) -> pa.Table:
    """Check the table of tokens. math, aime: groups of panel and thinking on these benchmarks."""
    summary, rows = parsed(tokens.here()), []
    for name, refs in (("math", math), ("aime", aime)):
        groups = [store().read(ref).to_pydict() for ref in refs]
        correct = {arm: sum(g["num_correct"]) for arm, g in zip(("panel", "thinking"), groups, strict=True)}
        pairs = sum(min(a, b) for a, b in zip(*(g["group_size"] for g in groups), strict=True))
        rows += checks.token_checks(name, summary[name], correct, pairs)
    return pa.Table.from_pylist(rows, schema=TokenChecks.schema)


@stage(Designs, version=3)
def import_designs(*, folder: PublishedFolder) -> pa.Table:
    return checks.designs(folder.here())


def by_folder(refs: tuple[Ref, ...], depth: int) -> dict[str, pa.Table]:
    """Return imported artifacts by the folder of their file below `reports/`."""
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
    """Return faults in the design of the published study. Schema: AUDIT. diversities, evaluations: imported from the
    folders in VARIANTS and EVALUATIONS (checks.py)."""
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
            "leaks": leak_rows(*sides_of(store().read(pool), store().read(splits)), trains, "data/olympiad_pool"),
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
