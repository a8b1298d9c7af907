"""Learning curves of one study made in two ways, point by point: is each inside the other's interval?

varband run demo --seeds 0,1,2 --set hardware.adapters=merged --root A
varband run demo --seeds 0,1,2 --set hardware.adapters=unmerged --root B
python -m benchmarks.curves_apart A B
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from storage.artifacts.store import Store
from storage.reading.catalog import lineage
from storage.sql import query

SUMMARY = """
with points as (
  select series, metric, a.estimate as one, b.estimate as other,
         b.estimate between a.low and a.high and a.estimate between b.low and b.high as inside
  from a join b using (series, arm, step, source, metric)
)
select series, metric, count(*) as points, count(*) filter (one = other) as equal, max(abs(one - other)) as furthest,
       count(*) filter (not inside) as outside
from points where inside is not null
group by all order by all
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("roots", type=Path, nargs=2)
    one, other = (curves(root) for root in parser.parse_args().roots)
    print(query(SUMMARY, a=one, b=other).to_pandas().to_string(index=False))


def curves(root: Path) -> Any:
    """Of the newest report of a root."""
    store = Store(root)
    report = max(store.refs("report"), key=lambda ref: store.manifest(ref).provenance.created)
    return store.read(next(ref for _, ref, _ in lineage(store, report) if ref.kind == "curves"))


if __name__ == "__main__":
    main()
