"""Partitions of rollouts into classes: by answer (the grader's equality), by trace (the encoder's similarity), and by
strategy (equations and named methods). The thresholds for traces and strategies are calibrated on labelled traces, with
precision and recall."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.schemas import Calibrations, Embeddings, Partitions, Rollouts
from storage.errors import UserError
from storage.sql import query
from tasks.domain.partitions import (
    INTEGER,
    Classes,
    Equal,
    LabelledGroup,
    by_strategy,
    by_trace,
    jaccard,
    left_out,
    profile,
    same_answers,
    similarities,
    summed,
    threshold_of,
)
from tasks.domain.scaffolds import MATH
from tasks.domain.statistics.means import ratio
from tasks.engines.encoding import labelled_problems, labelled_sha256
from tasks.evidence import answer_kind_of, with_vectors
from tasks.grading import by_grader, installed_graders
from tasks.stage import Payload, stage, store, toolbox

COLUMNS = ["problem_id", "arm", "adapter", "step", "seed", "rollout", "canonical", "correct", "trace"]
NOTED = ("threshold", "precision", "recall")
KEY = ["problem_id", "arm", "step", "seed", "rollout"]
SORTED = ["problem_id", "arm", "step", "seed", "adapter", "rollout"]


@stage(Partitions, version=3)
def partition_rollouts(
    *, rollouts: Rollouts, embeddings: Embeddings, calibration: Calibrations, grader_version: str
) -> Payload:
    """Return the classes of every rollout of one policy: by answer with this grader version, by trace and strategy with
    the calibrated thresholds. The notes in the manifest give the accuracy of the last two."""
    graders = installed_graders(grader_version)
    known = store().read(calibration).to_pylist()
    threshold = {row["partition"]: row["threshold"] for row in known}
    kind = answer_kind_of(rollouts)

    def parts() -> Iterator[pa.Table]:
        for rows, vectors in with_vectors(store().groups(rollouts, ["problem_id"], COLUMNS), embeddings):
            texts = classes_by_text(rows, vectors, threshold["trace"], threshold["strategy"])
            yield query(
                f"select a.*, t.trace_class, t.strategy_class from answers a join texts t using ({', '.join(KEY)})",
                answers=partitions_of(rows.drop_columns(["trace"]), by_grader(graders, kind), by_value=kind == MATH),
                texts=texts,
            )

    notes = {
        f"{row['partition']}_{name}": f"{row[name]:.4f}" for row in known for name in NOTED if row[name] is not None
    }
    return Payload(_in_order(parts()), notes=notes)


@stage(Partitions, version=2)
def partition_answers(*, rollouts: Rollouts, grader_version: str) -> Payload:
    """Return only the classes by answer, for a policy whose traces are not embedded."""
    kind, columns = answer_kind_of(rollouts), [*KEY, "adapter", "canonical", "correct"]
    equal = by_grader(installed_graders(grader_version), kind)
    groups = store().groups(rollouts, ["problem_id"], columns)
    answers = (partitions_of(rows, equal, by_value=kind == MATH) for rows in groups)
    unknown = "select *, null::integer as trace_class, null::integer as strategy_class from t"
    return Payload(_in_order(query(unknown, t=part) for part in answers))


def _in_order(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the problems in order, with sorted rollouts. Schema: Partitions."""
    for part in parts:
        named = part.select(Partitions.schema.names).cast(Partitions.schema)
        yield named.sort_by([(name, "ascending") for name in SORTED])


def classes_by_text(
    rollouts: pa.Table, vectors: pa.Table, trace_threshold: float, strategy_threshold: float
) -> pa.Table:
    """Return KEY and the classes of a policy's rollouts, null without one. vectors: columns of KEY, `embedding`."""
    at = {key: place for place, key in enumerate(_keys(vectors))}
    keys, embedded, groups = _keys(rollouts), vectors["embedding"], defaultdict[str, list[int]](list)
    for place, problem in enumerate(rollouts["problem_id"].to_pylist()):
        groups[problem].append(place)
    trace_class: Classes = [None] * rollouts.num_rows
    strategy_class: Classes = [None] * rollouts.num_rows
    for places in groups.values():
        if seen := [place for place in places if keys[place] in at]:
            vectors_ND = np.array(embedded.take([at[keys[place]] for place in seen]).to_pylist(), np.float32)
            for place, found in zip(seen, by_trace(vectors_ND, trace_threshold), strict=True):
                trace_class[place] = found
        classes = by_strategy(rollouts["trace"].take(places).to_pylist(), strategy_threshold)
        for place, found in zip(places, classes, strict=True):
            strategy_class[place] = found
    found = rollouts.select(KEY).append_column("trace_class", pa.array(trace_class, pa.int32()))
    return found.append_column("strategy_class", pa.array(strategy_class, pa.int32()))


def _keys(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(table[name].to_pylist() for name in KEY), strict=True))


def partitions_of(rollouts: pa.Table, equal: Equal, by_value: bool = True) -> pa.Table:
    """Return one row per rollout with its identity and `answer_class`: 0 for a correct answer; 1, 2, … for wrong ones,
    in the order of their texts; null if there is no answer to compare. Wrong answers share a class if a chain of equal
    pairs joins them. by_value: the answers are mathematics."""
    wrong = query(
        """
        select problem_id, list(distinct canonical order by canonical) as texts
        from rollouts where not correct and canonical is not null
        group by problem_id having count(distinct canonical) > 1
            and not ($by_value and bool_and(regexp_full_match(canonical, $integer))) order by problem_id
        """,
        {"integer": INTEGER.pattern, "by_value": by_value},
        rollouts=rollouts,
    ).to_pylist()
    same = same_answers({row["problem_id"]: row["texts"] for row in wrong}, equal, by_value)
    columns = ["problem_id", "canonical", "told_as"]
    merged = pa.table(
        [pa.array(column, pa.string()) for column in (zip(*same, strict=True) if same else ((), (), ()))], columns
    )
    return query(
        """
        with said as (
            select r.*, coalesce(m.told_as, r.canonical) as told
            from rollouts r left join merged m using (problem_id, canonical)),
        classes as (
            select problem_id, told, row_number() over (partition by problem_id order by told)::integer as answer_class
            from (select distinct problem_id, told from said where not correct and told is not null))
        select s.problem_id, s.arm, s.adapter, s.step, s.seed, s.rollout,
               case when s.correct then 0 else c.answer_class end as answer_class
        from said s left join classes c using (problem_id, told)
        order by s.problem_id, s.arm, s.step, s.seed, s.adapter, s.rollout
        """,
        rollouts=rollouts,
        merged=merged,
    )


FEW = "fewer than two problems join a pair, or all of them alike: no interval"


@stage(Calibrations, version=1)
def calibrate_partitions(*, encoder: str, weights_sha256: str, max_tokens: int, labelled: str) -> Payload:
    """Return one row per partition. labelled: hash of the labelled traces."""
    if labelled != labelled_sha256():
        raise UserError(
            f"the study was planned with other labelled traces ({labelled[:12]}…) than those of this installation"
            f" ({labelled_sha256()[:12]}…): plan it again"
        )
    problems = labelled_problems()
    solutions = [problem.solutions for problem in problems]
    vectors_ND, _ = (
        toolbox()
        .embedder(encoder, weights_sha256, max_tokens)
        .encode([trace for problem in problems for trace in problem.traces])
    )
    ends = np.cumsum([len(problem.traces) for problem in problems])[:-1]
    near = [similarities(part_ND) for part_ND in np.split(vectors_ND, ends)]
    alike = [jaccard([profile(trace) for trace in problem.traces]) for problem in problems]
    rows = [
        {"partition": "trace", "encoder": encoder} | calibrated(list(map(LabelledGroup, near, solutions))),
        {"partition": "strategy"} | calibrated(list(map(LabelledGroup, alike, solutions))),
    ]
    notes = {f"{row['partition']}_{name}": f"{row[name]:.4f}" for row in rows for name in ("precision", "recall")}
    return Payload(pa.Table.from_pylist(rows, schema=Calibrations.schema), notes=notes)


def calibrated(groups: Sequence[LabelledGroup]) -> dict[str, Any]:
    """Return the threshold from all groups, and precision and recall from leaving out one group at a time."""
    apart = left_out(groups)
    counts = summed(apart)
    row: dict[str, Any] = {
        "threshold": threshold_of(groups),
        "joined": counts.true_joined + counts.false_joined,
        "joined_rightly": counts.true_joined,
        "same": counts.true_joined + counts.false_apart,
        "pairs": sum(counts),
        "problems": len(groups),
        "traces": sum(len(group.solution_N) for group in groups),
    }
    hit_P = np.array([one.true_joined for one in apart], np.float64)
    for name, of in (("precision", "false_joined"), ("recall", "false_apart")):
        row |= _share(name, hit_P, hit_P + np.array([getattr(one, of) for one in apart], np.float64))
    return row


def _share(name: str, hit_P: np.ndarray, of_P: np.ndarray) -> dict[str, Any]:
    """Return a share of all pairs. The interval is over problems, because pairs of a problem depend on each other."""
    if not hit_P.any():
        return {name: 0.0 if of_P.any() else None, "reason": FEW}
    at, low, high = ratio(hit_P[None, :], of_P[None, :], trained=False)
    if not np.isfinite(low):
        return {name: at, "reason": FEW}
    return {name: at, f"{name}_low": low, f"{name}_high": min(high, 1.0)}
