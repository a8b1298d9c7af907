"""What training on finished groups while stragglers still decode could save at most, from the lengths in a store.

    python -m benchmarks.overlap STORE [--train-share 0.1 0.2 0.3 0.4]

For every training step of the store: a group is ready when its longest rollout is, decoding takes one unit a token of
the step's longest rollout, and training's share of the step is divided among groups by their tokens. Printed is the
share of a step that would be saved if both ran at full speed side by side, which one device does not allow.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from storage.ledger import Account, Ledger
from storage.sql import query


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--train-share", type=float, nargs="+", default=[0.1, 0.2, 0.3, 0.4])
    parser.add_argument("--group-size", type=int, default=8, help="of training; other rollouts are no step's")
    args = parser.parse_args()
    steps = groups_by_step(args.store, args.group_size)
    print(
        f"{len(steps)} steps; a group is ready after {np.mean([(r / r.max()).mean() for r, _ in steps]):.2f} of the step's"
    )
    print(f"decoding in the mean, the second last after {np.mean([np.sort(r)[-2] / r.max() for r, _ in steps]):.2f}")
    for share in args.train_share:
        saved = [saving(ready, tokens, share) for ready, tokens in steps]
        print(f"training {share:.0%} of a step: at most {np.mean(saved):.1%} of the step saved")


def groups_by_step(root: Path, group_size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(longest rollout, tokens) of each group, for each adapter's step."""
    book, found = Ledger(root), []
    for about in sorted((root / "ledger").glob("*/*/about.json")):
        rows = book.read(Account(about.parent.parent.name, about.parent.name))
        if rows is None:
            continue
        groups = query(
            "select max(num_tokens) as longest, sum(num_tokens) as tokens from rows where seed is not null"
            f" group by problem_id having count(*) = {group_size}",
            rows=rows.select(["problem_id", "num_tokens", "seed"]),
        )
        if 4 <= groups.num_rows <= 16:
            found.append(tuple(np.array(groups[c].to_pylist(), float) for c in ("longest", "tokens")))
    return found


def saving(ready: np.ndarray, tokens: np.ndarray, train_share: float) -> float:
    """Share of the step saved."""
    work = train_share * tokens / tokens.sum()
    at = (1 - train_share) * ready / ready.max()
    end = 0.0
    for i in np.argsort(at):
        end = max(end, at[i]) + work[i]
    return 1.0 - float(end)


if __name__ == "__main__":
    main()
