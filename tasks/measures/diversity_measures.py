"""Diversity of groups: distances between the traces of one problem, and how its answers differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import AnswerDiversity, Diversity
from storage.errors import UserError
from storage.sql import query
from tasks.domain.statistics import estimators
from tasks.domain.statistics.rewording import REWORDED
from tasks.domain.statistics.windows import of_tokens

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
    plain = ordered.drop(["embedding"]).to_pydict()
    rows = []
    for start, stop in _runs([plain[k] for k in GROUP]):
        some = slice(start, stop)
        row = {k: plain[k][start] for k in GROUP}
        correct = np.array(plain["correct"][some], bool)
        numbers = {k: np.array(plain[k][some], np.float64) for k in NUMBERS}
        kept_N = ~(numbers["coverage"] >= 1) if of_tokens(row["window"]) else np.ones(stop - start, bool)
        rows.append(row | _group(vectors_ND[some][kept_N], correct[kept_N], {k: v[kept_N] for k, v in numbers.items()}))
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


def matrix(vectors: pa.ChunkedArray) -> np.ndarray:
    """(N, D) of a list column. Errors: UserError for vectors of unequal length or numbers that are not finite."""
    whole = vectors.combine_chunks()
    lengths = np.unique(np.diff(whole.offsets.to_numpy()))
    if len(lengths) != 1:
        raise UserError(f"embeddings have vectors of {len(lengths)} lengths: they are of more than one encoder")
    flat = whole.flatten().to_numpy(zero_copy_only=False)
    if not np.isfinite(flat).all():
        raise UserError("embeddings hold numbers that are not finite: embed the traces again")
    return flat.reshape(len(whole), -1)


def _runs(keys: Sequence[Sequence[object]]) -> list[tuple[int, int]]:
    """[start, stop) of every stretch of equal keys in sorted columns."""
    together = list(zip(*keys, strict=True))
    starts = [0, *(i for i in range(1, len(together)) if together[i] != together[i - 1])]
    return list(zip(starts, [*starts[1:], len(together)], strict=True))


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
