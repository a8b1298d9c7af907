"""Diversity of one problem's rollouts: distances between embedded traces, and the variety of answers."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.artifacts.ref import Ref
from storage.artifacts.schemas import (
    AnswerDiversity,
    Diversity,
    DiversityCeilings,
    DiversityComparison,
    Embeddings,
    Partitions,
    Rollouts,
)
from storage.sql import query
from tasks.domain.statistics import estimators, means, paired_tests
from tasks.domain.statistics.curves_of_k import estimate_rows
from tasks.domain.statistics.windows import REWORDED, of_tokens
from tasks.evidence import matrix, sampled_with, standard_measure
from tasks.measures.groups import OF_ROLLOUT, Row, counts_of, in_classes, seeded, stretches, with_clusters
from tasks.stage import beside, stage, store

# ---- diversity of groups: distances between the traces of one problem, and between its answers

#: Traces that agree in these columns form a group.
GROUP = ["arm", "step", "seed", "window", "source", "problem_id"]
NUMBERS = ("correct", "num_tokens", "num_chars", "coverage")


def diversity_of(embeddings: pa.Table) -> pa.Table:
    """Return one row per problem, policy and window. Values are None, with a reason, for fewer than two traces.

    Measures that do not depend on n: diversity (mean pairwise cosine distance), spread (trace of the covariance),
    vendi_of_4 (effective number of distinct traces among 4), length_cv (with n − 1). A measure that depends on n:
    clusters (DBSCAN eps 0.25, min 2, noise counted, as published). coverage: mean share of a trace that the encoder
    saw. num_tokens, num_chars: means. A window of a fixed number of tokens includes only traces that are longer than
    the window.
    """
    own = embeddings.filter(pc.field("window") != REWORDED)
    if own.num_rows == 0:
        return Diversity.schema.empty_table()
    ordered = own.sort_by([(name, "ascending") for name in [*GROUP, "rollout"]])
    vectors_ND = matrix(ordered["embedding"])
    numbers = {name: np.array(ordered[name].to_pylist(), np.float64) for name in NUMBERS}
    rows = []
    for row, some in stretches(ordered, GROUP):
        of = {name: column_N[some] for name, column_N in numbers.items()}
        kept_N = ~(of["coverage"] >= 1) if of_tokens(row["window"]) else np.ones(len(of["coverage"]), bool)
        rows.append(row | _group(vectors_ND[some][kept_N], {name: column_N[kept_N] for name, column_N in of.items()}))
    return pa.Table.from_pylist(rows, schema=Diversity.schema)


def _group(vectors_ND: np.ndarray, of: Mapping[str, np.ndarray]) -> Row:
    if not (n := len(vectors_ND)):
        return {"n": 0, "num_correct": 0, "reason": "no trace is longer than the window"}
    found = estimators.mean_pairwise_distance(vectors_ND)
    row = {name: float(of[name].mean()) for name in ("num_tokens", "num_chars", "coverage")}
    if found is not None:
        row |= {
            f"per_1000_{unit}": 1000 * found / row[f"num_{unit}"] for unit in ("tokens", "chars") if row[f"num_{unit}"]
        }
    return row | {
        "n": n,
        "num_correct": int(of["correct"].sum()),
        "share_correct": float(of["correct"].mean()),
        "diversity": found,
        "diversity_correct": estimators.mean_pairwise_distance(vectors_ND[of["correct"] > 0]),
        "spread": estimators.spread(vectors_ND),
        "clusters": estimators.num_clusters(vectors_ND),
        "vendi_of_4": estimators.vendi_of_k(vectors_ND, 4),
        "length_cv": estimators.length_cv(of["num_tokens"]),
        "reason": None if n > 1 else "one trace has no pair",
    }


def answers_of(rollouts: pa.Table) -> pa.Table:
    """Measure the diversity of final answers per problem and policy. No encoder is needed.

    The measures use `answer_class`: entropy (nats; plug-in plus (m − 1)/2n for m answers, Miller and Madow 1955),
    disagreement (unbiased chance that two rollouts give different answers), distinct_of_4 (rarefaction). Only rollouts
    with an answer count; `answered` is their number. A policy that is always correct has entropy and disagreement 0, so
    read `num_correct` too.
    """
    return query(
        """
        with counted as (
            select arm, step, seed, source, problem_id, answer_class, bool_or(correct) as correct, count(*) as times,
                   sum(if(answer_class is null, 0, times)) over (partition by arm, step, seed, problem_id) as answers
            from rollouts group by arm, step, seed, source, problem_id, answer_class),
        summed as (
            select arm, step, seed, source, problem_id, any_value(answers) as answered, sum(times) as n,
                   coalesce(sum(times) filter (correct), 0) as num_correct, count(answer_class) as "distinct",
                   count(answer_class) filter (not correct) as distinct_wrong,
                   sum(times * ln(times)) filter (answer_class is not null) as logs,
                   sum(times * (times - 1)) filter (answer_class is not null) as alike,
                   sum(pass_at_k(answers, if(answer_class is null, 0, times), 4)) as distinct_of_4
            from counted group by arm, step, seed, source, problem_id)
        select problem_id, source, arm, step, seed, n, answered, num_correct,
               if(answered > 1, greatest(ln(answered) - logs / answered, 0) + ("distinct" - 1) / (2 * answered), null)
                   as entropy,
               if(answered > 1, 1 - alike / (answered * (answered - 1)), null) as disagreement,
               "distinct", if(answered > 1, distinct_of_4, null) as distinct_of_4, distinct_wrong,
               if(answered > 1, null, 'fewer than two rollouts gave an answer') as reason
        from summed order by arm, step, seed, source, problem_id
        """,
        rollouts=rollouts,
    ).cast(AnswerDiversity.schema)


# ---- policies compared in pairs on their common problems, column by column

COLUMNS = ("diversity", "diversity_correct", "n", "coverage", "num_tokens", "share_correct")


def compare_columns(tables: Sequence[pa.Table], metrics: Sequence[str]) -> pa.Table:
    """Compare every two policies (arm, step), paired by problem. Schema: DiversityComparison.

    basis: `all` (problems where both are defined) or `equal_n` (problems where both have equally many traces). low,
    high, p_value, adjusted_*: over problems (near-duplicates, by `cluster`, count once) and, for trained policies, over
    seeds. The seeds are the values of a table's `adapter`, which pair arms with the same adapters. Without that column
    each artifact of an (arm, step) is one seed. t, p_t, p_normal: uncorrected tests on seed means, as publications
    print them. p_adjusted, adjusted_p_corrected: Benjamini-Hochberg corrections of p_value and adjusted_p, over whole
    traces at equal n, and separately over all other rows. adjusted_*: difference after regression on log length and
    accuracy (on accuracy alone in a window of tokens); adjusted_reason: why it is missing.
    """
    rows: list[Row] = []
    for window, policies in _policies(tables).items():
        for metric in metrics:
            for basis in ("all", "equal_n"):
                for (arm, step), (other, other_step) in combinations(policies, 2):
                    about = {"metric": metric, "basis": basis, "window": window, "source": "all"}
                    about |= {"arm": arm, "step": step, "other": other, "other_step": other_step}
                    rows.append(about | _compare(policies[arm, step], policies[other, other_step], about))
    corrected = paired_tests.in_families(rows, _family, beside=("adjusted_p",))
    return pa.Table.from_pylist(corrected, schema=DiversityComparison.schema)


def _family(row: Row) -> paired_tests.Family:
    declared = (row["metric"], row["window"], row["basis"]) == ("diversity", "whole", "equal_n")
    return "diversity of whole traces at equal n" if declared else "diversity, explored", "bh"


def _policies(tables: Sequence[pa.Table]) -> dict[str, dict[tuple[str, int], means.Seeded]]:
    """Return window → (arm, step) → COLUMNS and cluster, by seed and problem. Step 0 counts as one seed."""
    named = []
    for i, table in enumerate(tables):
        for name, column in (("cluster", table["problem_id"]), ("adapter", pa.repeat(f"artifact {i}", len(table)))):
            table = table if name in table.column_names else table.append_column(name, column)
        named.append(table)
    measured = query(
        f"""
        select "window" as source, arm, step, problem_id, cluster, if(step = 0, '', adapter) as adapter, 0 as seed,
               {", ".join(f'"{name}"::double as "{name}"' for name in COLUMNS)}
        from measured
        """,
        measured=pa.concat_tables(named),
    )
    counts, found = counts_of(measured), dict[str, dict[tuple[str, int], means.Seeded]]()
    for arm, step, window in sorted(place for place in counts.places if place[2] != "all"):
        of = counts.at((arm, step, window))
        found.setdefault(window, {})[arm, step] = seeded(of, COLUMNS)
    return dict(sorted(found.items()))


def _compare(a: means.Seeded, b: means.Seeded, about: Row) -> Row:
    metric, place = about["metric"], COLUMNS.index(about["metric"])
    common = means.on_common_problems([a, b])
    kept_P = np.logical_and.reduce([np.isfinite(one.values_SPV[:, :, place]).all(axis=0) for one in common])
    if about["basis"] == "equal_n":
        sizes = [one.values_SPV[:, :, COLUMNS.index("n")].mean(axis=0) for one in common]
        kept_P &= sizes[0] == sizes[1]
    values = [one.values_SPV[:, kept_P] for one in common]
    x, y = ({name: v[:, :, i].mean(axis=0) for i, name in enumerate(COLUMNS)} for v in values)
    row = paired_tests.paired(x[metric], y[metric])
    row |= {"mean": row.pop("mean_first", None), "other_mean": row.pop("mean_second", None), "low": None, "high": None}
    if not row["n"]:
        return row
    for name, one in (("coverage", x), ("other_coverage", y)):
        if np.isfinite(one["coverage"]).all():
            row[name] = float(one["coverage"].mean())
    cluster_P = values[0][0, :, -1]
    first, second = (means.folded(v[:, :, place, None], cluster_P) for v in values)
    trained, shared = (a.trained, b.trained), means.same_adapters([a.adapter_S, b.adapter_S])
    gap = means.combined([(1.0, first), (-1.0, second)], trained, paired=shared)
    if min(x[metric].sum(), y[metric].sum()) > 0:
        _, low, high = means.ratio(first[:, :, 0], second[:, :, 0], trained, paired=shared)
        row |= {"relative_low": low - 1, "relative_high": high - 1} if np.isfinite(low) else {}
    figures = estimate_rows(gap, row["n"], alike="")[0]
    row |= {name: value for name, value in figures.items() if name not in ("estimate", "n", "reason")}
    if row["n"] > 1 and gap.n < 2:
        return row | {"reason": means.ONE_PROBLEM, "adjusted_reason": f"not adjusted: {means.ONE_PROBLEM}"}
    noise = sum(
        float((v["share_correct"] * (1 - v["share_correct"]) / np.maximum(v["n"] - 1, 1)).mean()) / len(seeded)
        for v, seeded in zip((x, y), values, strict=True)
    )
    if of_tokens(about["window"]):  # the encoder sees the same length of each trace
        x["num_tokens"] = y["num_tokens"] = np.ones(row["n"])
    if not (x["num_tokens"] > 0).all() or not (y["num_tokens"] > 0).all():
        return row | {"adjusted_reason": "not adjusted: lengths are not known"}
    more, freedom = float(gap.spread.seeds_V[0]), float(gap.spread.seeds_df_V[0])
    longer_P, better_P = np.log(x["num_tokens"] / y["num_tokens"]), x["share_correct"] - y["share_correct"]
    rest = cluster_P, noise, more, freedom if more else np.inf
    return row | paired_tests.adjusted(x[metric] - y[metric], longer_P, better_P, *rest)


# ---- reference points of diversity: a lower one (one trace, reworded) and an upper one (traces of different problems)

KEYS = ("arm", "step", "seed", "window")


def ceilings_of(embeddings: Iterable[pa.Table], again: Iterable[tuple[pa.Table, pa.Table]]) -> pa.Table:
    """Return one row per policy and window. embeddings: whole problems of a window. again: (reworded, original) traces.

    floor: mean distance between a trace and its reworded version, over `reworded` traces, one per problem (whole traces
    only). within: mean distance of two traces of one problem. between: mean distance of two traces of different
    problems. position: where `within` lies between floor (0) and between (1), so that the overall spread of an arm's
    vocabulary has no effect; an unknown floor is 0. coverage: mean share of a trace that the encoder saw. n: traces.
    """
    sums: dict[tuple[Any, ...], np.ndarray] = {}
    for part in embeddings:
        original = part.filter(pc.field("window") != REWORDED).sort_by([(name, "ascending") for name in GROUP])
        if original.num_rows == 0:
            continue
        vectors_ND, coverage_N = matrix(original["embedding"]).astype(np.float64), original["coverage"].to_numpy()
        for row, some in stretches(original, GROUP):
            v_ND, key = vectors_ND[some], tuple(row[name] for name in KEYS)
            n, total_D = len(v_ND), v_ND.sum(axis=0)
            own = [n, 1, n * (n - 1), total_D @ total_D, (v_ND * v_ND).sum(), coverage_N[some].sum()]
            sums[key] = sums.get(key, 0) + np.concatenate([own, total_D])
    floors = _floors(again) if sums else {}
    rows = []
    for key, (n, problems, pairs, inside, squares, coverage, *total_D) in sorted(sums.items()):
        floor, reworded = floors.get(key[:3], (None, 0)) if key[3] == "whole" else (None, 0)
        row = dict(zip(KEYS, key, strict=True)) | {"n": int(n), "problems": int(problems), "coverage": coverage / n}
        row |= {"floor": floor, "reworded": reworded}
        apart = n * (n - 1) - pairs
        if pairs == 0 or apart == 0:
            rows.append(row | {"reason": "one problem only" if problems == 1 else "no problem has two traces"})
            continue
        within = 1 - (inside - squares) / pairs
        between = 1 - (float(np.square(total_D).sum()) - inside) / apart
        above = between - (floor or 0.0)
        position = (within - (floor or 0.0)) / above if above > 0 else None
        rows.append(row | {"within": within, "between": between, "position": position})
    return pa.Table.from_pylist(rows, schema=DiversityCeilings.schema)


def _floors(parts: Iterable[tuple[pa.Table, pa.Table]]) -> dict[tuple[Any, ...], tuple[float, int]]:
    """Return (arm, step, seed) → (mean distance between a trace and its reworded version, number of traces)."""
    sql = """
        select a.arm, a.step, a.seed, 1 - list_dot_product(a.embedding::double[], b.embedding::double[]) as distance
        from whole a join again b using (arm, step, seed, problem_id, rollout)
    """
    found = [query(sql, whole=whole, again=again) for again, whole in parts]
    if not found:
        return {}
    mean = query("select arm, step, seed, avg(distance), count(*) from t group by all", t=pa.concat_tables(found))
    return {tuple(key): (at, n) for *key, at, n in zip(*mean.to_pydict().values(), strict=True)}


@stage(Diversity, version=4)
def measure_diversity(*, embeddings: Embeddings) -> pa.Table:
    """Return the mean pairwise distance of each problem, with length, accuracy and the encoder's coverage."""
    parts = store().groups(embeddings, ["window", "problem_id"])
    rows = pa.concat_tables([Diversity.schema.empty_table(), *map(diversity_of, parts)])
    return rows.sort_by([(key, "ascending") for key in GROUP])


@stage(AnswerDiversity, version=4)
def measure_answers(*, rollouts: Rollouts, partitions: Partitions) -> pa.Table:
    """Measure the diversity of each problem's answers. No encoder is needed."""
    parts = [answers_of(part) for part in in_classes(rollouts, partitions, OF_ROLLOUT)]
    whole = pa.concat_tables([AnswerDiversity.schema.empty_table(), *parts])
    return whole.sort_by([(name, "ascending") for name in ("arm", "step", "seed", "source", "problem_id")])


@stage(DiversityComparison, version=18)
def compare_diversity(*, diversities: tuple[Diversity, ...]) -> pa.Table:
    """Compare every two policies, paired by problem, and by seed if they use the same adapters."""
    if not diversities:
        return DiversityComparison.schema.empty_table()
    tables = [_with_adapter(with_clusters(store().read(ref), [ref]), ref) for ref in diversities]
    return compare_columns(tables, ("diversity", "diversity_correct")).cast(DiversityComparison.schema)


def _with_adapter(rows: pa.Table, measured: Ref) -> pa.Table:
    """Add the sampled adapter as a column. If the adapter is unknown, use the artifact's own name."""
    policy = (sampled_with(measured) or {}).get("policy")
    adapter = policy.get("adapter") if isinstance(policy, dict) else None
    return rows.append_column("adapter", pa.array([str(adapter or measured)] * rows.num_rows, pa.string()))


@standard_measure("ceilings")
@stage(DiversityCeilings, version=4)
def measure_ceilings(*, embeddings: tuple[Embeddings, ...]) -> pa.Table:
    """Return the distance within problems with its lower reference (reworded traces) and upper (other problems)."""
    return pa.concat_tables([_ceilings(ref) for ref in embeddings])


def _ceilings(ref: Embeddings) -> pa.Table:
    """Read reworded traces separately, because they are stored after all others."""
    at, in_other_words = ["window", "problem_id"], pc.field("window") == REWORDED
    known = set(store().keys(ref, at).filter(in_other_words)["problem_id"].unique().to_pylist())
    whole_traces = pc.field("problem_id").isin(pa.array(sorted(known), pa.string())) & (pc.field("window") == "whole")
    whole = (part.filter(whole_traces) for part in store().groups(ref, at))
    again = (part for groups in store().groups(ref, at) if (part := groups.filter(in_other_words)).num_rows)
    return ceilings_of(store().groups(ref, at), beside(again, whole, known, Embeddings.schema))
