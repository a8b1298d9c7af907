"""What is being made right now: steps of trainings that have no artifact yet, read from their newest checkpoint."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow as pa

from storage.artifacts.kinds import Training
from storage.artifacts.kinds.experiment import TRAINING_METRICS
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.ledger import ABOUT
from storage.sql import named, query

#: What a page may choose to see by step.
METRICS = (*TRAINING_METRICS, "num_tokens")
LIVE = Training.schema.append(pa.field("ref", pa.string()))


def live_steps(root: Path) -> pa.Table:
    """Rows so far of every training at work or interrupted. Schema: LIVE; an arm that is not known yet is `?`."""
    store, arms, rows = Store(root), None, []
    for folder in sorted((root / ".work").glob("training-*")):
        try:
            ref = Ref.parse(folder.name)
        except UserError:
            continue
        if (store.path(ref) / "manifest.json").exists():
            continue
        newest = max((folder / "checkpoints").glob("step-*/state.json"), key=_step, default=None)
        if newest is None:
            continue
        try:
            steps = orjson.loads(newest.read_bytes())["steps"]
        except (OSError, ValueError, KeyError):  # replaced by the next checkpoint while it was read
            continue
        arms = _arms(root) if arms is None else arms
        known = {"arm": arms.get(str(ref), "?"), "ref": str(ref)}
        rows += [{name: known.get(name, step.get(name)) for name in LIVE.names} for step in steps]
    return pa.Table.from_pylist(rows, schema=LIVE)


def _step(state: Path) -> int:
    return int(state.parent.name.removeprefix("step-"))


def standing(steps: pa.Table) -> pa.Table:
    """Where every training of `live_steps` stands. Columns: those of query `app_live`."""
    return query(named("app_live"), steps=steps)


def _arms(root: Path) -> dict[str, str]:
    """Training → arm, from what the ledger says of its accounts."""
    found = {}
    for path in (root / "ledger").glob(f"*/*/{ABOUT}"):
        try:
            about = orjson.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if about.get("adapter"):
            found[about["adapter"]] = about.get("arm", "?")
    return found
