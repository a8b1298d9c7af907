"""Training curves: held-out accuracy by step, gains against what was trained on, and training's own series."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.kinds import Curves, Pool, Rollouts, Splits, Training
from storage.sql import query
from tasks.designs import trained_on
from tasks.domain.arms import ARMS
from tasks.measures.grouping import read_groups
from tasks.measures.trajectories import gain_rows, heldout_rows, training_rows, with_shares
from tasks.stage import stage, store

Shares = dict[str, dict[str, int]]


def curves_of(
    groups: pa.Table, steps: pa.Table | None, training: Shares, exposure: Shares, ends: pa.Table | None = None
) -> pa.Table:
    """Columns of Curves. series: `heldout`, the curve; `gain` (with the shares of training pool and exposure);
    `training`. ends: groups of the final evaluation, which the gains are of; None: the curve's are final."""
    rows = heldout_rows(groups)
    rows += with_shares(gain_rows(groups if ends is None else ends), training, exposure)
    if steps is not None and steps.num_rows:
        rows += training_rows(steps)
    return pa.Table.from_pylist(rows, schema=Curves.schema)


def counted(table: pa.Table) -> Shares:
    """arm → source → rows; an arm that is evaluated with another's adapter has that one's."""
    found: Shares = {}
    for row in query("select arm, source, count(*) as n from t group by arm, source", t=table).to_pylist():
        found.setdefault(row["arm"], {})[row["source"]] = row["n"]
    for name, arm in ARMS.items():
        if name not in found and arm.trained_as in found:
            found[name] = found[arm.trained_as]
    return found


@stage(Curves, version=15)
def training_curves(
    *,
    trainings: tuple[Training, ...],
    evaluations: tuple[Rollouts, ...],
    final: tuple[Rollouts, ...],
    pool: Pool,
    splits: Splits,
) -> pa.Table:
    """Held-out by step, source and arm with intervals; gains, of the final evaluations, against training-pool share and
    actual exposure."""
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
