"""The causal chain of the hypothesis, by regression. Are problems with more diverse traces at the start more often in
the variance band, and do they gain more from training? The data are observational, so no slope proves a cause."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.artifacts.rows import nullable
from storage.artifacts.schemas import Bands, Diversity, Rollouts
from storage.sql import query
from tasks.domain.statistics.means import ONE_PROBLEM, combined, folded, holds_for
from tasks.domain.statistics.paired_tests import in_families
from tasks.domain.statistics.regression import slope
from tasks.evidence import standard_measure
from tasks.measures.groups import Row, read_groups
from tasks.stage import stage, store

#: The fewest problems for a slope, when difficulty and arms are held fixed.
FEWEST = 20
LINKS = ("diversity to band", "band to gain", "diversity to gain")


class Chain(
    Ref,
    kind="chain",
    schema=nullable(
        "metric str, source str, arm str, dose str, estimate real, low real, high real, p_value real, p_adjusted real",
        "family str, diversity real, live_share real, n big, problems big, seeds int, holds_for str, method str",
        "reason str",
    ),
):
    """Slopes of the chain at equal difficulty, and the gain by level of diversity."""


def chain_of(groups: pa.Table, bands: pa.Table, diversity: pa.Table) -> pa.Table:
    """Return rows of these metrics:
    - `diversity to band`, `diversity to gain`: effect of one standard deviation of an arm's diversity at the start on
      the chance of the variance band at screening, and on the gain.
    - `band to gain`: how much more the problems of the variance band gain than others.
    - `gain by dose`: mean gain of problems with low, middle and high diversity, without effects of difficulty and arm.
    - `by source`: means.

    Slopes hold difficulty (share correct and its square), arm and source fixed. Otherwise a source with more diversity
    and larger gains could turn a slope around. Predictor and outcome come from different rollouts (screening and step
    0), so their sampling errors are independent. An estimate is None, with a reason, if there are too few problems or
    if the screening's shares are biased. groups: held-out groups of the first and last step, with `cluster`. n: number
    of pairs of problem and arm.
    """
    table = _laid_out(groups, bands, diversity)
    rows: list[Row] = []
    for source in ("all", *sorted(set(table["source"].to_pylist()))):
        mine = table if source == "all" else query("from t where source = $s", {"s": source}, t=table)
        rows += [{"source": source} | row for row in _links(mine)]
    rows += _by_source(table)
    family = lambda r: ("chain" if r["source"] == "all" else "chain by source", "bh")  # noqa: E731
    return pa.Table.from_pylist(in_families(rows, family), schema=Chain.schema)


def _laid_out(groups: pa.Table, bands: pa.Table, diversity: pa.Table) -> pa.Table:
    """Return a row for each problem and arm that has a screening, a vector at step 0 and all adapters' accuracies."""
    return query(
        """
        with last as (select arm, max(step) as step from groups group by arm having max(step) > 0),
             after as (
                select arm, problem_id, list(share order by adapter) as after from (
                    select arm, problem_id, adapter, sum(num_correct) / sum(group_size) as share
                    from groups semi join last using (arm, step) group by all)
                group by all),
             before as (
                select arm, problem_id, any_value(source) as source, any_value(cluster) as cluster,
                       sum(num_correct) / sum(group_size) as share
                from groups where step = 0 group by arm, problem_id),
             spread as (
                select arm, problem_id, avg(diversity) as diversity from diversity
                where step = 0 and "window" = 'whole' and diversity is not null group by all)
        select before.*, after, diversity, s.group_size, s.num_correct / s.group_size as screened,
               (is_variance(s.band))::int::double as live
        from before join after using (arm, problem_id) join spread using (arm, problem_id)
        join bands s using (arm, problem_id)
        where len(after) = (select max(len(after)) from after)
        order by arm, problem_id
        """,
        groups=groups,
        bands=bands,
        diversity=diversity,
    )


def _links(table: pa.Table) -> list[Row]:
    problems = len(set(table["problem_id"].to_pylist()))
    about: Row = {"n": table.num_rows, "problems": problems}
    why = f"{problems} problems were screened, embedded and trained past; a slope wants {FEWEST}"
    if problems >= FEWEST:
        several = len(set(table["group_size"].to_pylist())) > 1
        why = "groups of the screening differ in size, as adaptive ones do: their shares are biased" if several else ""
    if why:
        return [about | {"metric": metric, "reason": why} for metric in LINKS]
    after_SN = np.array(table["after"].to_pylist(), np.float64).T
    about |= {"seeds": len(after_SN), "holds_for": holds_for(len(after_SN))}
    own, screened, live, spread = (table[c].to_numpy() * 1.0 for c in ("share", "screened", "live", "diversity"))
    arm_N, group_N, source_N = (
        np.unique(table[c].to_pylist(), return_inverse=True)[1] for c in ("arm", "cluster", "source")
    )
    within = lambda value: _less_mean(value, source_N)  # noqa: E731
    dose = within(_standardised(spread, arm_N))
    arms = [one for a in range(1, arm_N.max() + 1) if np.ptp(one := within((arm_N == a) * 1.0)) > 1e-9]
    difficulty, at_screening = ([within(x), within(x**2), *arms] for x in (own, screened))
    found = {
        "diversity to band": slope(within(live[None]), [dose, *difficulty], group_N),
        "band to gain": slope(within(after_SN - own), [within(live), *at_screening], group_N),
        "diversity to gain": slope(within(after_SN - screened), [dose, *difficulty], group_N),
    }
    rows = []
    for metric, one in found.items():
        row = about | {"metric": metric} | one
        # bands belong to the policy before training, which has no seeds
        rows.append(row | ({"seeds": None, "holds_for": None} if metric == "diversity to band" else {}))
    fixed_ND = np.column_stack(difficulty)
    left = dose - fixed_ND @ np.linalg.lstsq(fixed_ND, dose, rcond=None)[0]
    return [*rows, *(about | row for row in _doses(after_SN - screened, left, group_N))]


def _standardised(value_N: np.ndarray, arm_N: np.ndarray) -> np.ndarray:
    """Divide values by their standard deviation within the arm. If the deviation is 0, return the values unchanged."""
    away_N = _less_mean(value_N, arm_N)
    scale = float(np.sqrt((away_N**2).sum() / max(len(away_N) - len(np.unique(arm_N)), 1)))
    return away_N / scale if scale > 0 else away_N


def _less_mean(value: np.ndarray, class_N: np.ndarray) -> np.ndarray:
    """Subtract the mean of its class from each value along the last axis, which removes fixed effects of classes."""
    member_NC = np.eye(class_N.max() + 1)[class_N]
    return value - value @ member_NC / member_NC.sum(axis=0) @ member_NC.T


def _doses(gain_SN: np.ndarray, left_N: np.ndarray, group_N: np.ndarray) -> list[Row]:
    thirds_N = np.searchsorted(np.quantile(left_N, [1 / 3, 2 / 3]), left_N)
    rows: list[Row] = []
    for i, dose in enumerate(("least diverse", "middle", "most diverse")):
        mine = thirds_N == i
        row: Row = {"metric": "gain by dose", "dose": dose, "n": int(mine.sum())}
        if mine.any():
            mean = combined([(1.0, folded(gain_SN[:, mine, None], group_N[mine]))], [True], reach=1.0)
            low, high = (float(end[0]) for end in mean.interval())
            row |= {"estimate": float(mean.estimate_V[0])}
            row |= {"low": low, "high": high} if np.isfinite(low) else {"reason": ONE_PROBLEM}
        rows.append(row if mine.any() else row | {"reason": "no problem in this third"})
    return rows


def _by_source(table: pa.Table) -> list[Row]:
    return query(
        """
        select 'by source' as metric, source, arm, avg(diversity) as diversity, avg(live) as live_share,
               avg(list_avg(after) - screened) as estimate, count(*) as n, count(distinct problem_id) as problems
        from t group by source, arm order by source, arm
        """,
        t=table,
    ).to_pylist()


@standard_measure("chain", needs=("trainings",), rollouts="final")
@stage(Chain, version=6)
def follow_the_chain(
    *, rollouts: tuple[Rollouts, ...], bands: tuple[Bands, ...], diversities: tuple[Diversity, ...]
) -> pa.Table:
    """Relate diversity at the start, variance band and gain, by problem and by source."""
    parts: list[Sequence[Ref]] = [bands, diversities]
    screened, spread = (pa.concat_tables([store().read(ref) for ref in refs]) for refs in parts)
    return chain_of(read_groups(rollouts), screened, spread)
