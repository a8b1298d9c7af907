"""The published study's files as tables of this project's kinds. Nothing is filled in: what a file lacks is null.

Names are translated once, here: `uid` is a problem, `variance_band` is `variance`, a `batch` is the number of
updates done before it, and the length columns of the diversity files, called characters in the write-up, are tokens
(their AIME means equal the completion-token means of the token table to the last digit).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from storage.artifacts.kinds import Bands, Groups, Pool, Splits, TrainingPools, TrainingSeries
from storage.errors import UserError
from storage.sql import answer, connect, query

Row = dict[str, Any]


def read(path: Path, sql: str, schema: pa.Schema, **given: object) -> pa.Table:
    """Return what a statement makes of one JSON file, `$path`, in a schema; columns that it does not name are null.

    Errors: UserError naming the file: it is no JSON, lacks a field, or has a problem twice.
    """
    connection = connect(threads=1, reads=[path])
    try:
        found = answer(connection, sql, {"path": str(path), **given})
        made = pa.table([_column(found, field) for field in schema], schema=schema)
    except (duckdb.Error, pa.ArrowException) as error:
        raise UserError(f"{path.name}: not the published file: {str(error).splitlines()[0][:200]}") from None
    finally:
        connection.close()
    if "problem_id" in schema.names and len(set(names := made["problem_id"].to_pylist())) != len(names):
        raise UserError(f"{path.name}: a problem occurs twice")
    return made


def _column(found: pa.Table, field: pa.Field) -> Any:
    return found[field.name].cast(field.type) if field.name in found.column_names else pa.nulls(len(found), field.type)


def whole(path: Path) -> Any:
    """A file of one JSON value. Errors: UserError naming it."""
    return _parsed(path, _text(path), "")


def rows_of(path: Path) -> list[Row]:
    """Rows of a JSON Lines file. Errors: UserError naming the line that is no JSON."""
    lines = enumerate(_text(path).splitlines(), 1)
    return [_parsed(path, line, f" line {number}") for number, line in lines if line.strip()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None


def _parsed(path: Path, text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise UserError(f"{path.name}{where}: not JSON; the published file is damaged") from None


def bands(path: Path, arm: str) -> pa.Table:
    """variance_band/*/per_problem.jsonl. Schema: Bands. Bands are recomputed; a stated one that differs is an error."""
    sql = """
        select uid as problem_id, source, $arm as arm, n_samples as group_size, n_correct as num_correct,
            if(replace(stated, '_band', '') = found, found,
               error(uid || ' has ' || n_correct || ' of ' || n_samples || ' correct but is called ' || stated)) as band
        from (select * exclude (band), band as stated, band(n_correct, n_samples) as found from read_json_auto($path))
    """
    return read(path, sql, Bands.schema, arm=arm)


def groups(path: Path, arm: str, adapter: str) -> pa.Table:
    """`per_problem` of an evaluation's summary.json. Schema: Groups; source: `L1`…`L5` or the AIME year."""
    sql = """
        select $arm as arm, 0 as step, $adapter as adapter, 0 as seed,
            (r ->> 'n_samples')::int as group_size, (r ->> 'n_correct')::int as num_correct,
            coalesce('AIME ' || (r ->> 'year'), 'L' || (r ->> 'level')) as source,
            coalesce('aime' || (r ->> 'year') || '_' || (r ->> 'problem_idx'), r ->> 'unique_id') as problem_id
        from (select unnest(per_problem) as r from read_json($path, columns = {per_problem: 'JSON[]'}))
    """
    return read(path, sql, Groups.schema, arm=arm, adapter=adapter)


def diversity(path: Path, label: str, arm: str, window: str, schema: pa.Schema) -> pa.Table:
    """One variant of a diversity file. `schema` is that of the diversity stage."""
    sql = """
        select uid as problem_id, if(level = '?', 'AIME ' || uid[5:8], 'L' || level) as source, $arm as arm, 0 as step,
            0 as seed, $window as "window", n_samples as n, n_correct as num_correct, mean_pairwise_dist as diversity,
            emb_variance_trace * n_samples / (n_samples - 1) as spread, distinct_strategies as clusters,
            len_mean as num_tokens, len_cv as length_cv, n_correct / n_samples as share_correct,
            1000 * mean_pairwise_dist / len_mean as per_1000_tokens
        from read_json_auto($path) where label = $label
    """
    made = read(path, sql, schema, label=label, arm=arm, window=window)
    if made.num_rows == 0:
        raise UserError(f"{path.name}: no rows labelled {label}")
    return made


def pools(paths: dict[str, Path]) -> pa.Table:
    """Which problem is in which published pool (a problem may be in both training pools). Schema: TrainingPools."""
    sql = "select $name as pool, uid as problem_id, source from read_json_auto($path)"
    return pa.concat_tables(read(path, sql, TrainingPools.schema, name=name) for name, path in paths.items())


def pool(paths: Iterable[Path]) -> pa.Table:
    """The problems whose text was published, each once. Schema: Pool; golds as published, unchecked."""
    sql = """
        select uid as problem_id, source, uid as source_id, problem, gold, gold as gold_raw, answer_type,
            uid as cluster, year
        from read_json_auto($path)
    """
    every = pa.concat_tables(read(path, sql, Pool.schema) for path in paths)
    first: dict[str, int] = {}
    for place, problem in enumerate(every["problem_id"].to_pylist()):
        first.setdefault(problem, place)
    return every.take(list(first.values()))


def splits(heldout: Path, others: Iterable[Path]) -> pa.Table:
    """The evaluation problems are held out, all others are not. Schema: Splits."""
    sql = """
        select problem_id, source, if(problem_id in (select problem_id from held), 'heldout', 'train') as split
        from every
    """
    return query(sql, held=pool([heldout]), every=pool([heldout, *others])).cast(Splits.schema)


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


def series(steps: Path, spread: Path) -> pa.Table:
    """Training's own series, long. Schema: TrainingSeries; n: rollouts of the step."""
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
    return pa.concat_tables(
        [read(steps, per_step, TrainingSeries.schema), read(spread, lengths, TrainingSeries.schema)]
    )
