"""Training curves: held-out accuracy by step, gains with the composition of training data, metrics of training
steps."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.schemas import TRAINING_METRICS, Curves, GainDifferences, Pool, Rollouts, Splits, Training
from storage.estimates import Band
from storage.sql import query
from tasks.designs import trained_on
from tasks.domain.scaffolds import ARMS
from tasks.domain.statistics.curves_of_k import estimate_rows
from tasks.domain.statistics.means import MARGIN, Seeded, contrast, on_common_problems
from tasks.domain.statistics.paired_tests import Family, family_of_gain, in_families
from tasks.measures.groups import Row, accuracy, counts_of, estimates, read_groups
from tasks.stage import stage, store

# ---- held-out curves: accuracy by step and source with intervals, and gains

Shares = dict[str, dict[str, int]]


def heldout_rows(groups: pa.Table) -> list[Row]:
    """Return `heldout` rows: mean accuracy by arm, step and source, with its interval over problems and seeds."""

    def of_slice(of: dict[str, np.ndarray]) -> list[Row]:
        [row] = estimates(of | {"accuracy": of["num_correct"] / of["group_size"]}, {"accuracy": {"metric": "pass@1"}})
        row |= {"series": "heldout", "rollouts": int(of["group_size"].sum()), "seeds": row["seeds"] or 1}
        return [row | ({"method": "Wilson on the effective number of problems"} if row["n"] else {})]

    return counts_of(groups).rows(of_slice)


def gain_rows(groups: pa.Table) -> list[Row]:
    """Return `gain` rows: accuracy at each arm's last step minus that at its first, paired by problem. The last step
    counts even if an earlier one was better. p_adjusted: Benjamini-Hochberg over the arms' gains on all sources, and
    separately over gains by source. p_equivalent: p-value of the equivalence test with margin ±MARGIN."""
    counts, rows = counts_of(groups), list[Row]()
    for arm, (first, last) in counts.spans.items():
        for source in counts.sources:
            before, after = (accuracy(counts, (arm, step, source)) for step in (first, last))
            figures, _ = contrasted([after, before], (1.0, -1.0), "every problem gains the same")
            if first == last:
                figures = {"n": figures["n"], "reason": "evaluated at one step only"}
            elif not figures["n"]:
                figures["reason"] = "no problem was evaluated at both ends"
            else:
                figures["method"] = "t over problems and seeds"
            size = int(counts.at((arm, last, source))["group_size"].sum())
            row: Row = {"series": "gain", "metric": "pass@1", "arm": arm, "step": last, "source": source}
            rows.append(row | figures | {"rollouts": size, "seeds": len(after.values_SPV)})
    return in_families(rows, family_of_gain, beside=("p_equivalent",))


def contrasted(ends: Sequence[Seeded], signs: Sequence[float], alike: str) -> tuple[Row, list[float]]:
    """Return (row of Σ sign · accuracy on the common problems, mean of each end). ends: after and before of each arm.
    p_equivalent: of the equivalence test with margin ±MARGIN, or None. alike: the reason if all problems are equal."""
    common = on_common_problems(ends)
    if not len(common[0].problem_P):
        return {"n": 0}, []
    found = contrast(signs, common, reach=len(ends) / 2, starts=range(1, len(ends), 2))
    figures = estimate_rows(found, len(common[0].problem_P), alike=alike)[0]
    if found.known_V[0]:
        low_V, high_V = found.sequence()
        figures |= {"sequence_low": float(low_V[0]), "sequence_high": float(high_V[0])}
        figures["p_equivalent"] = float(found.p_equivalent(MARGIN)[0])
    return figures, [float(one.values_SPV[:, :, 0].mean()) for one in common]


METRICS = (*TRAINING_METRICS, *Band)


def training_rows(steps: pa.Table) -> list[Row]:
    """Return `training` rows: each metric by step, averaged over seeds; low and high are the smallest and largest seed.
    `all_zero`, `variance`, `all_one`: groups of the step by band. `variance_share`: share of groups in that band."""
    columns = {metric: metric for metric in METRICS if metric in steps.column_names}
    if set(Band) <= columns.keys():
        columns["variance_share"] = "variance / nullif(all_zero + variance + all_one, 0)"
    values = ", ".join(f'({column})::double as "{name}"' for name, column in columns.items())
    return query(
        f"""
        with wide as (select arm, step, {values} from steps)
        select 'training' as series, arm, step, metric, avg(value) as estimate, min(value) as low,
               max(value) as high, count(value)::integer as seeds,
               'mean over seeds, from the least to the largest' as method,
               case when count(value) = 0 then 'not measured at this step' end as reason
        from wide unpivot include nulls (value for metric in (columns(* exclude (arm, step))))
        group by arm, step, metric order by arm, metric, step
        """,
        steps=steps,
    ).to_pylist()


def share_of(counts: Shares, row: Row) -> float | None:
    """Return which share of the problems of a row's arm comes from the row's source; None without counts."""
    own = counts.get(row["arm"], {})
    total = sum(own.values())
    return (1.0 if row["source"] == "all" else own.get(row["source"], 0) / total) if total else None


def curves_of(
    groups: pa.Table, steps: pa.Table | None, training: Shares, exposure: Shares, ends: pa.Table | None = None
) -> pa.Table:
    """Return the training curves. Schema: Curves. series: `heldout`; `gain`, with the source's shares of the training
    pool and of the trained groups (training, exposure: arm → source → count); `training`. ends: groups of the final
    evaluation, from which gains are computed; None computes gains from the curve."""
    rows = heldout_rows(groups)
    for row in gain_rows(groups if ends is None else ends):
        rows.append(row | {"training_share": share_of(training, row), "exposure_share": share_of(exposure, row)})
    if steps is not None and steps.num_rows:
        rows += training_rows(steps)
    return pa.Table.from_pylist(rows, schema=Curves.schema)


def counted(table: pa.Table) -> Shares:
    """Return arm → source → rows. An arm that is evaluated with another arm's adapter gets that arm's counts."""
    found: Shares = {}
    for row in query("select arm, source, count(*) as n from t group by arm, source", t=table).to_pylist():
        found.setdefault(row["arm"], {})[row["source"]] = row["n"]
    for name, arm in ARMS.items():
        if name not in found and arm.trained_as in found:
            found[name] = found[arm.trained_as]
    return found


@stage(Curves, version=16)
def training_curves(
    *,
    trainings: tuple[Training, ...],
    evaluations: tuple[Rollouts, ...],
    final: tuple[Rollouts, ...],
    pool: Pool,
    splits: Splits,
) -> pa.Table:
    """Return held-out accuracy by step, source and arm, and final gains with each source's share of training."""
    problems, held = store().read(pool, ["problem_id", "source"]), store().read(splits)
    groups, ends = read_groups(list(dict.fromkeys(evaluations))), read_groups(final)
    if not trainings:
        return curves_of(groups, None, {}, {}, ends)
    steps = pa.concat_tables([store().read(ref) for ref in trainings])
    pools = pa.concat_tables([trained_on(ref, problems, held) for ref in trainings])
    exposures = [store().files(ref) / "exposure.parquet" for ref in trainings]
    seen = [pq.read_table(path, columns=["arm", "source"]) for path in exposures if path.exists()]
    exposure = counted(pa.concat_tables(seen)) if seen else {}
    return curves_of(groups, steps, counted(pools), exposure, ends)


# ---- the difference of gains, the main result of a study: did one arm gain more from training than another?


#: Columns with an end of an interval.
ENDS = tuple(f"{of}{end}" for of in ("", "sequence_", "corrected_") for end in ("low", "high"))


def gains_of(groups: pa.Table) -> pa.Table:
    """Compare the held-out gains of every two arms by source, from the first to the last evaluated step.

    Gains are paired by problem, on common problems. Interval and p are over problems and the training seeds of each
    trained arm. p_adjusted: Holm over the pairs of arms on all sources (the confirmatory family), Benjamini-Hochberg by
    source. corrected: ends of the interval that agrees with p_adjusted. sequence: ends of the confidence sequence,
    which holds at all looks together. p_equivalent: p-value of the equivalence test with margin ±MARGIN. detectable:
    the difference that this design detects with 80 % power. A gain is None, with a reason, if the arm was evaluated at
    one step only. There is no interval if no rollout was correct, before or after.
    """
    counts, rows = counts_of(groups), list[Row]()
    spans = counts.spans
    for source in counts.sources:
        for one, other in combinations(spans, 2):
            row: Row = {"metric": "difference_of_gains", "arm": one, "step": spans[one][1], "source": source}
            row |= {"other": other, "other_step": spans[other][1]}
            if still := [arm for arm in (one, other) if spans[arm][0] == spans[arm][1]]:
                rows.append(row | {"n": 0, "reason": f"{' and '.join(still)}: evaluated at one step only"})
                continue
            four = [accuracy(counts, (arm, step, source)) for arm in (one, other) for step in reversed(spans[arm])]
            figures, mean = contrasted(four, (1.0, -1.0, -1.0, 1.0), "both arms gain the same on every problem")
            if figures["n"]:
                row |= {"gain": mean[0] - mean[1], "other_gain": mean[2] - mean[3]}
                row["lead"] = mean[1] - mean[3]
                if not any(mean):
                    figures = {"estimate": 0.0, "n": figures["n"], "reason": "no rollout of either arm was correct"}
            else:
                figures["reason"] = "no problem that both arms were asked at both ends"
            rows.append(row | figures)

    def family(row: Row) -> Family:
        return ("difference of gains", "holm") if row["source"] == "all" else ("difference of gains by source", "bh")

    named = in_families(rows, family, beside=("p_equivalent",))
    for row in named:  # two accuracies differ by at most 1, also after training
        ends = {name: row[name] for name in ENDS if row.get(name) is not None}
        row |= {name: min(max(end, -1 - row["lead"]), 1 - row["lead"]) for name, end in ends.items()}
    return pa.Table.from_pylist(named, schema=GainDifferences.schema)


@stage(GainDifferences, version=13)
def compare_gains(*, evaluations: tuple[Rollouts, ...]) -> pa.Table:
    """Compare the held-out gains of every two arms."""
    return gains_of(read_groups(evaluations))
