"""What an undisturbed run leaves, and what another one lacks of it, has twice or has otherwise."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.records.runs import read_run
from storage.records.spending import charges
from storage.sql import query
from tests.chaos.study import RUN

KEY = ["problem_id", "rollout"]


class Broken(AssertionError):
    """A fault left something behind that it must not: the first word says what."""


@dataclass(frozen=True, slots=True)
class Left:
    """What a finished run leaves. files: artifact → file → sha256. rows: account → its rows, in the order of KEY,
    duplicates included, without the engine's name. charged: rollouts that were paid for."""

    files: dict[str, dict[str, str]]
    rows: dict[str, pa.Table]
    charged: int

    @property
    def num_rows(self) -> int:
        return sum(rows.num_rows for rows in self.rows.values())


def left(root: Path) -> Left:
    """Errors: Broken for an artifact that is damaged, or does not follow from the inputs that are there."""
    at, book = Store(root), Ledger(root)
    if stale := [str(ref) for ref in at.refs() if not at.fresh(ref)]:
        raise Broken(f"damaged: {stale}")
    rows = {}
    for account, _ in book.accounts():
        if (found := book.rows(account)) is not None:
            rows[f"{account.policy}/{account.sampling}"] = found.drop(["engine"]).sort_by(
                [(k, "ascending") for k in KEY]
            )
    bought = query("select coalesce(sum(rollouts), 0)::bigint n from charges", charges=charges(root, RUN))["n"][0]
    files = {str(ref): {f.path: f.sha256 for f in at.manifest(ref).files} for ref in at.refs()}
    return Left(files, rows, bought.as_py())


def check(root: Path, undisturbed: Left, in_flight: int = 0, taken: int = 0, uncharged: int = 0) -> int:
    """Compare a finished run's root with the undisturbed one. Returns the rollouts that were charged and not kept.

    in_flight: so many may have been paid for when their process ended, and not entered yet. taken: rows of a damaged
    shard, which are sampled again where something still wants them. uncharged: rollouts of a damaged line of charges.
    Errors: Broken with what is lost, doubled, charged or otherwise.
    """
    now = left(root)
    if lost := sorted(undisturbed.files.keys() - now.files.keys()):
        raise Broken(f"lost: artifacts {lost}")
    if doubled := sorted(now.files.keys() - undisturbed.files.keys()):
        raise Broken(f"doubled: artifacts {doubled}")
    for account in sorted(undisturbed.rows.keys() | now.rows.keys()):
        _check_rows(account, undisturbed.rows.get(account), now.rows.get(account), taken)
    if other := [ref for ref, files in undisturbed.files.items() if now.files[ref] != files]:
        raise Broken(f"differs: artifacts {other}")
    over = now.charged - now.num_rows
    if over < -uncharged:
        raise Broken(f"lost: charges of {-over} rollouts")
    if over > in_flight + taken:
        raise Broken(f"doubled: charges of {over} rollouts, where {in_flight + taken} may have been")
    if (state := read_run(root, RUN).state) != "finished":
        raise Broken(f"lost: the record says {state}")
    return max(0, over)


def _check_rows(account: str, expected: pa.Table | None, found: pa.Table | None, taken: int) -> None:
    if expected is None:
        raise Broken(f"doubled: account {account}")
    if found is None:
        if expected.num_rows > taken:
            raise Broken(f"lost: account {account}")
        return
    keys = [set(zip(*(t[k].to_pylist() for k in KEY), strict=True)) for t in (expected, found)]
    if found.num_rows > len(keys[1]) or keys[1] - keys[0]:
        raise Broken(f"doubled: {found.num_rows - len(keys[0] & keys[1])} rollouts of {account}")
    if len(missing := keys[0] - keys[1]) > taken:
        raise Broken(f"lost: {len(missing)} rollouts of {account}")
    there = [key in keys[1] for key in zip(*(expected[k].to_pylist() for k in KEY), strict=True)]
    if not found.equals(expected.filter(pa.array(there))):
        raise Broken(f"differs: rollouts of {account}")
