"""Diversity: how far apart the traces of one problem lie, with and without an encoder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.artifacts.kinds import (
    AnswerDiversity,
    Diversity,
    DiversityCeilings,
    DiversityComparison,
    Embeddings,
    Partitions,
    Rollouts,
)
from storage.artifacts.ref import Ref
from storage.sql import query
from tasks.domain.statistics import estimators
from tasks.domain.statistics.curves_of_k import told_of
from tasks.domain.statistics.means import (
    ONE_PROBLEM,
    Means,
    Seeded,
    by_seed,
    combined,
    folded,
    ratio_of_policies,
    same_adapters,
)
from tasks.domain.statistics.paired_tests import (
    Family,
    explained_difference,
    in_families,
    paired,
    unblurred,
    unsupported,
)
from tasks.domain.statistics.windows import REWORDED, of_tokens
from tasks.evidence import matrix, sampled_with
from tasks.measures.groups import in_classes, stretches, with_clusters
from tasks.measures.standard import standard_measure
from tasks.stage import beside, stage, store

# Diversity of groups: distances between the traces of one problem, and how its answers differ.

#: Whose traces are compared with each other.
GROUP = ["arm", "step", "seed", "window", "source", "problem_id"]


def diversity_of(embeddings: pa.Table) -> pa.Table:
    """One row per (problem, policy, window). Null, with the reason, where fewer than two traces leave it undefined.

    diversity: mean pairwise cosine distance; spread: trace of the covariance; vendi_of_4: effective number of distinct
    traces among 4; length_cv over n − 1: none of these depends on n. clusters does (DBSCAN eps 0.25, min 2, noise
    counted, as published). coverage: mean share of a trace that the encoder saw; num_tokens, num_chars: means.
    In a window of so many tokens only traces that are longer than it count: others were shown whole, and less of.
    """
    own = query('from t where "window" <> $w', {"w": REWORDED}, t=embeddings)
    ordered = own.sort_by([(k, "ascending") for k in [*GROUP, "rollout"]])
    if ordered.num_rows == 0:
        return Diversity.schema.empty_table()
    vectors_ND = matrix(ordered["embedding"])
    plain = {k: np.array(ordered[k].to_pylist(), np.float64) for k in ("correct", *NUMBERS)}
    rows = []
    for row, some in stretches(ordered, GROUP):
        of = {k: column_N[some] for k, column_N in plain.items()}
        kept_N = ~(of["coverage"] >= 1) if of_tokens(row["window"]) else np.ones(len(of["coverage"]), bool)
        of = {k: column_N[kept_N] for k, column_N in of.items()}
        rows.append(row | _group(vectors_ND[some][kept_N], of.pop("correct") > 0, of))
    return pa.Table.from_pylist(rows, schema=Diversity.schema)


NUMBERS = ("num_tokens", "num_chars", "coverage")


def _group(vectors_ND: np.ndarray, correct_N: np.ndarray, numbers: dict[str, np.ndarray]) -> dict[str, Any]:
    n, tokens_N = len(vectors_ND), numbers["num_tokens"]
    if not n:
        return {"n": 0, "num_correct": 0, "reason": "no trace is longer than the window"}
    found = estimators.mean_pairwise_distance(vectors_ND)
    tokens, chars = float(tokens_N.mean()), float(numbers["num_chars"].mean())
    return {
        "n": n,
        "num_correct": int(correct_N.sum()),
        "diversity": found,
        "diversity_correct": estimators.mean_pairwise_distance(vectors_ND[correct_N]),
        "spread": estimators.spread(vectors_ND),
        "clusters": estimators.num_clusters(vectors_ND),
        "vendi_of_4": estimators.vendi_of_k(vectors_ND, 4),
        "coverage": float(numbers["coverage"].mean()),
        "num_tokens": tokens,
        "num_chars": chars,
        "share_correct": float(correct_N.mean()),
        "length_cv": estimators.length_cv(tokens_N),
        "per_1000_tokens": None if found is None or not tokens else 1000 * found / tokens,
        "per_1000_chars": None if found is None or not chars else 1000 * found / chars,
        "reason": None if n > 1 else "one trace has no pair",
    }


def answers_of(rollouts: pa.Table) -> pa.Table:
    """Encoder-free companions, per problem and policy: how the final answers of a group differ.

    entropy (nats, Miller-Madow) and disagreement over `answer_class`; a rollout without an answer is left out and
    `answered` says how many are in. A policy that is always right has 0 of each, so `num_correct` stands beside them.
    """
    groups = query(
        """
        with counted as (
            select arm, step, seed, source, problem_id, answer_class, bool_or(correct) as correct, count(*) as times
            from rollouts group by all)
        select arm, step, seed, source, problem_id, sum(times)::integer as n,
               coalesce(sum(times) filter (where answer_class is not null), 0)::integer as answered,
               coalesce(sum(times) filter (where correct), 0)::integer as num_correct,
               count(*) filter (where answer_class is not null)::integer as "distinct",
               count(*) filter (where answer_class is not null and not correct)::integer as distinct_wrong,
               list(times order by times desc) filter (where answer_class is not null) as counts
        from counted group by arm, step, seed, source, problem_id order by arm, step, seed, source, problem_id
        """,
        rollouts=rollouts,
    )
    rows = []
    for row in groups.to_pylist():
        counts = row.pop("counts") or []
        defined = sum(counts) > 1
        rows.append(
            row
            | {
                "entropy": estimators.answer_entropy(counts) if defined else None,
                "disagreement": estimators.disagreement(counts) if defined else None,
                "distinct_of_4": estimators.distinct_of_k(counts, 4) if defined else None,
                "reason": None if defined else "fewer than two rollouts gave an answer",
            }
        )
    return pa.Table.from_pylist(rows, schema=AnswerDiversity.schema)


# Policies compared in pairs on their common problems, column by column.

COLUMNS = ("diversity", "diversity_correct", "n", "coverage", "num_tokens", "share_correct")
Policies = dict[tuple[str, int], Seeded]


def compare_columns(tables: Sequence[pa.Table], metrics: Sequence[str]) -> pa.Table:
    """Every two (arm, step), paired by problem; columns of DiversityComparison.schema.

    basis: `all` problems on which both are defined, or `equal_n`, those on which both have equally many traces. low,
    high, p_value, adjusted_*: over problems, near-duplicates (`cluster` of a table that has it) as one, and, for what
    was trained, seeds: those of a table's `adapter`, where it has this column, which pair arms of the same adapters;
    else the artifacts of an (arm, step) are its replicates.
    t, p_t, p_normal: of the seeds' means, as publications print them, uncorrected. p_adjusted and
    adjusted_p_corrected, of p_value and adjusted_p: Benjamini and Hochberg over whole traces at equal n, and over the
    rest.
    adjusted_*: the difference left where log length and accuracy do not differ, or accuracy alone in a window of
    tokens; adjusted_reason: why there is none.
    """
    rows: list[dict[str, Any]] = []
    by_window = _policies(tables)
    for window, policies in by_window.items():
        for metric in metrics:
            for basis in ("all", "equal_n"):
                rows += [
                    _compare(policies, window, metric, basis, first, second)
                    for first, second in combinations(policies, 2)
                ]
    corrected = in_families(rows, _family, beside=("adjusted_p",))
    return pa.Table.from_pylist(corrected, schema=DiversityComparison.schema)


def _family(row: dict[str, Any]) -> Family:
    declared = (row["metric"], row["window"], row["basis"]) == ("diversity", "whole", "equal_n")
    return "diversity of whole traces at equal n" if declared else "diversity, explored", "bh"


def _policies(tables: Sequence[pa.Table]) -> dict[str, Policies]:
    """window → (arm, step) → COLUMNS and the cluster, by replicate and problem. An untrained policy (step 0) is one
    replicate."""
    known = [t if "cluster" in t.column_names else t.append_column("cluster", t["problem_id"]) for t in tables]
    numbered = [
        t
        if "adapter" in t.column_names
        else t.append_column("adapter", pa.array([f"artifact {i}"] * t.num_rows, pa.string()))
        for i, t in enumerate(known)
    ]
    rows = query(
        f"""
        select "window", arm, step, dense_rank() over (order by problem_id) as problem,
               case when step = 0 then 0 else dense_rank() over (order by adapter) end as replicate,
               {", ".join(f'"{c}"::double as "{c}"' for c in COLUMNS)},
               dense_rank() over (order by coalesce(cluster, problem_id))::double as cluster
        from measured order by all
        """,
        measured=pa.concat_tables(numbered),
    )
    keys = list(zip(*(rows[c].to_pylist() for c in ("window", "arm", "step")), strict=True))
    problem_N, replicate_N = (rows[c].to_numpy() for c in ("problem", "replicate"))
    values_NV = np.column_stack([np.array(rows[c].to_pylist(), np.float64) for c in (*COLUMNS, "cluster")])
    found: dict[str, Policies] = {}
    for key in sorted(set(keys)):
        mine = np.array([k == key for k in keys])
        found.setdefault(key[0], {})[key[1:]] = by_seed(problem_N[mine], replicate_N[mine], values_NV[mine])
    return found


def _compare(
    policies: Policies, window: str, metric: str, basis: str, first: tuple[str, int], second: tuple[str, int]
) -> dict[str, Any]:
    a, b = policies[first], policies[second]
    _, in_a, in_b = np.intersect1d(a.problem_P, b.problem_P, return_indices=True)
    x_SPV, y_SPV = a.values_SPV[:, in_a], b.values_SPV[:, in_b]
    kept_P = np.isfinite(x_SPV[:, :, COLUMNS.index(metric)]).all(axis=0)
    kept_P &= np.isfinite(y_SPV[:, :, COLUMNS.index(metric)]).all(axis=0)
    x, y = ({c: v[:, :, i].mean(axis=0) for i, c in enumerate(COLUMNS)} for v in (x_SPV, y_SPV))
    if basis == "equal_n":
        kept_P &= x["n"] == y["n"]
    x, y = ({c: v[kept_P] for c, v in one.items()} for one in (x, y))
    result = asdict(paired(x[metric], y[metric]))
    row: dict[str, Any] = {
        "metric": metric,
        "basis": basis,
        "window": window,
        "source": "all",
        "arm": first[0],
        "step": first[1],
        "other": second[0],
        "other_step": second[1],
        "mean": result.pop("mean_first"),
        "other_mean": result.pop("mean_second"),
    }
    row |= {k: v for k, v in result.items() if k not in ("sd", "low", "high")}
    if not result["n"]:
        return row
    for name, one in (("coverage", x), ("other_coverage", y)):
        if np.isfinite(one["coverage"]).all():
            row[name] = float(one["coverage"].mean())
    place, cluster_P = COLUMNS.index(metric), x_SPV[0, kept_P, -1]
    one, other = (folded(v[:, kept_P, place, None], cluster_P) for v in (x_SPV, y_SPV))
    trained, shared = (a.trained, b.trained), same_adapters([a.adapter_S, b.adapter_S])
    means = combined([(1.0, one), (-1.0, other)], trained, paired=shared)
    if min(x[metric].sum(), y[metric].sum()) > 0:
        _, low, high = ratio_of_policies(one[:, :, 0], other[:, :, 0], trained, paired=shared)
        row |= {"relative_low": low - 1, "relative_high": high - 1} if np.isfinite(low) else {}
    row |= {
        k: v for k, v in told_of(means, int(kept_P.sum()), alike="")[0].items() if k not in ("estimate", "n", "reason")
    }
    if result["n"] > 1 and means.n < 2:
        return row | {"reason": ONE_PROBLEM, "adjusted_reason": f"not adjusted: {ONE_PROBLEM}"}
    seeds = (len(x_SPV), len(y_SPV))
    noise = sum(
        float((v["share_correct"] * (1 - v["share_correct"]) / np.maximum(v["n"] - 1, 1)).mean()) / s
        for v, s in zip((x, y), seeds, strict=True)
    )
    if of_tokens(window):  # as much is shown of each
        x, y = ({**v, "num_tokens": np.ones_like(v["num_tokens"])} for v in (x, y))
    return row | _adjusted(x, y, metric, means, cluster_P, noise)


def _adjusted(
    x: dict[str, np.ndarray], y: dict[str, np.ndarray], metric: str, means: Means, cluster_P: np.ndarray, noise: float
) -> dict[str, Any]:
    """adjusted_* of a comparison, or adjusted_reason. noise: variance that few rollouts give a difference in
    accuracy."""
    if not (x["num_tokens"] > 0).all() or not (y["num_tokens"] > 0).all():
        return {"adjusted_reason": "not adjusted: lengths are not known"}
    longer_P = np.log(x["num_tokens"] / y["num_tokens"])
    if why := unsupported(longer_P):
        return {"adjusted_reason": why}
    d_P = x[metric] - y[metric]
    more, freedom = float(means.spread.seeds_V[0]), float(means.spread.seeds_df_V[0])
    better_P = x["share_correct"] - y["share_correct"]
    left = explained_difference(d_P, longer_P, better_P, cluster_P, more, freedom if more else np.inf)
    if not isinstance(left, str):
        left = unblurred(left, d_P, longer_P, better_P, noise)
    if isinstance(left, str):
        return {"adjusted_reason": left}
    return dict(zip(("adjusted_difference", "adjusted_low", "adjusted_high", "adjusted_p"), left, strict=True))


# What a diversity figure is held against: a floor, one trace in other words; a ceiling, shuffled problems.

KEYS = ("arm", "step", "seed", "window")


def ceilings_of(embeddings: pa.Table) -> pa.Table:
    """One row per policy and window.

    floor: mean distance of a trace from itself in other words, over `reworded` traces, one a problem (of the whole
    trace only). within: mean distance of two traces of one problem, over all such pairs. between: of two traces of
    different problems, what shuffling the problems would give. position: where `within` lies from floor (0) to
    ceiling (1), free of how wide an arm's vocabulary spreads all of its traces; from 0 where there is no floor.
    coverage: mean share of a trace that the encoder saw; n: traces.
    """
    whole, again = (embeddings.filter(pc.field("window") == w) for w in ("whole", REWORDED))
    return ceilings_of_parts([embeddings], [(again, whole)])


def ceilings_of_parts(embeddings: Iterable[pa.Table], again: Iterable[tuple[pa.Table, pa.Table]]) -> pa.Table:
    """The same, part by part: of whole problems in a window; of reworded traces, with those of their problems."""
    sums: dict[tuple[Any, ...], Sums] = {}
    for part in embeddings:
        shown = query('from t where "window" <> $w', {"w": REWORDED}, t=part)
        if shown.num_rows == 0:
            continue
        keys = list(zip(*(shown[c].to_pylist() for c in KEYS), strict=True))
        problem_N, vectors_ND = np.array(shown["problem_id"].to_pylist()), matrix(shown["embedding"])
        coverage_N = shown["coverage"].to_numpy()
        for key in set(keys):
            mine = np.array([k == key for k in keys])
            sums.setdefault(key, Sums()).add(vectors_ND[mine], problem_N[mine], float(coverage_N[mine].sum()))
    floors = _floors(again) if sums else {}
    rows = []
    for key, found in sorted(sums.items()):
        floor_M = np.array(floors.get(key[:3], ()) if key[3] == "whole" else ())
        row = dict(zip(KEYS, key, strict=True)) | {"reworded": len(floor_M), "coverage": found.coverage / found.n}
        if len(floor_M):
            row["floor"] = float(floor_M.mean())
        rows.append(row | found.figures(row.get("floor", 0.0)))
    return pa.Table.from_pylist(rows, schema=DiversityCeilings.schema)


def _floors(parts: Iterable[tuple[pa.Table, pa.Table]]) -> dict[tuple[Any, ...], list[float]]:
    """(arm, step, seed) → distances of traces from themselves in other words."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for again, whole in parts:
        pairs = query(
            """
            select a.arm, a.step, a.seed, a.embedding as said, b.embedding as again
            from whole a join again b using (arm, step, seed, problem_id, rollout)
            order by a.arm, a.step, a.seed, problem_id
            """,
            whole=whole,
            again=again,
        )
        if pairs.num_rows:
            said_ND, again_ND = (matrix(pairs[c]).astype(np.float64) for c in ("said", "again"))
            keys = zip(*(pairs[c].to_pylist() for c in KEYS[:3]), strict=True)
            for key, distance in zip(keys, 1 - (said_ND * again_ND).sum(axis=1), strict=True):
                found.setdefault(key, []).append(float(distance))
    return found


@dataclass(slots=True)
class Sums:
    """What the figures of one policy and window are made of. inside: of squared sums, a problem; total_D: of all
    vectors; squares: of their lengths; pairs: of two traces of one problem, in both orders."""

    n: int = 0
    problems: int = 0
    pairs: int = 0
    inside: float = 0.0
    squares: float = 0.0
    coverage: float = 0.0
    total_D: np.ndarray | float = 0.0

    def add(self, vectors_ND: np.ndarray, problem_N: np.ndarray, coverage: float) -> None:
        """Traces of whole problems."""
        v = vectors_ND.astype(np.float64)
        _, index_N, size_P = np.unique(problem_N, return_inverse=True, return_counts=True)
        sums_PD = np.zeros((len(size_P), v.shape[1]))
        np.add.at(sums_PD, index_N, v)
        self.n, self.problems = self.n + len(v), self.problems + len(size_P)
        self.pairs += int((size_P * (size_P - 1)).sum())
        self.inside += float((sums_PD * sums_PD).sum())
        self.squares += float((v * v).sum())
        self.coverage += coverage
        self.total_D = self.total_D + sums_PD.sum(axis=0)

    def figures(self, floor: float) -> dict[str, Any]:
        inside, everything = (self.inside - self.squares, float(np.square(self.total_D).sum()) - self.squares)
        apart = self.n * (self.n - 1) - self.pairs
        row: dict[str, Any] = {"n": self.n, "problems": self.problems}
        if self.pairs == 0 or apart == 0:
            return row | {"reason": "one problem only" if self.problems == 1 else "no problem has two traces"}
        within, between = 1 - inside / self.pairs, 1 - (everything - inside) / apart
        position = (within - floor) / (between - floor) if between > floor else None
        return row | {"within": within, "between": between, "position": position}


@stage(Diversity, version=4)
def measure_diversity(*, embeddings: Embeddings) -> pa.Table:
    """Mean pairwise distance per problem, with length, accuracy and encoder coverage beside it."""
    parts = store().groups(embeddings, ["window", "problem_id"])
    rows = pa.concat_tables([Diversity.schema.empty_table(), *map(diversity_of, parts)])
    return rows.sort_by([(key, "ascending") for key in GROUP])


@stage(AnswerDiversity, version=4)
def measure_answers(*, rollouts: Rollouts, partitions: Partitions) -> pa.Table:
    """How the answers of each problem's rollouts differ; needs no encoder."""
    columns = ["problem_id", "source", "arm", "adapter", "step", "seed", "rollout", "correct"]
    parts = [answers_of(part) for part in in_classes(rollouts, partitions, columns)]
    whole = pa.concat_tables([AnswerDiversity.schema.empty_table(), *parts])
    return whole.sort_by([(name, "ascending") for name in ("arm", "step", "seed", "source", "problem_id")])


@stage(DiversityComparison, version=17)
def compare_diversity(*, diversities: tuple[Diversity, ...]) -> pa.Table:
    """Every two policies, paired by problem, and by seed where both are the same adapters. No rows where the study asks
    for no diversity."""
    if not diversities:
        return DiversityComparison.schema.empty_table()
    tables = [_with_adapter(with_clusters(store().read(ref), [ref]), ref) for ref in diversities]
    return compare_columns(tables, ("diversity", "diversity_correct")).cast(DiversityComparison.schema)


def _with_adapter(rows: pa.Table, measured: Ref) -> pa.Table:
    """With the training whose adapter was sampled, as far as it is known: else an artifact is a training of its own."""
    policy = (sampled_with(measured) or {}).get("policy")
    adapter = policy.get("adapter") if isinstance(policy, dict) else None
    return rows.append_column("adapter", pa.array([str(adapter or measured)] * rows.num_rows, pa.string()))


@standard_measure("ceilings")
@stage(DiversityCeilings, version=4)
def measure_ceilings(*, embeddings: tuple[Embeddings, ...]) -> pa.Table:
    """Distance within problems between its floor, a trace in other words, and its ceiling, shuffled problems."""
    return pa.concat_tables([_ceilings(ref) for ref in embeddings])


def _ceilings(ref: Embeddings) -> pa.Table:
    """Reworded traces come after all others: they and those that they are of are read on their own."""
    at, in_other_words = ["window", "problem_id"], pc.field("window") == REWORDED
    known = set(store().keys(ref, at).filter(in_other_words)["problem_id"].unique().to_pylist())
    asked = pc.field("problem_id").isin(pa.array(sorted(known), pa.string())) & (pc.field("window") == "whole")
    whole = (part.filter(asked) for part in store().groups(ref, at))
    again = (part for groups in store().groups(ref, at) if (part := groups.filter(in_other_words)).num_rows)
    return ceilings_of_parts(store().groups(ref, at), beside(again, whole, known, Embeddings.schema))
