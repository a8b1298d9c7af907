"""A lesson's split is kept clear of what the study holds out."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from storage.artifacts.kinds import Pool, Splits
from storage.artifacts.manifest import Recipe
from storage.artifacts.provenance import provenance
from storage.artifacts.ref import Ref
from storage.artifacts.store import Payload, Store
from tasks.domain.problems.problems import pool_rows
from tasks.engines.toolbox import Toolbox
from tasks.splits import keep_clear
from tasks.stage import Session, session
from tasks.training import trainable

BOX = "A rectangular box has edges of length three, four and five and is cut by one plane through two of its corners."
RING = "Two circles lie in a ring so that each touches the other and both of its rims; find the sum of their radii."

K = TypeVar("K", bound=Ref)


def kept(store: Store, kind: type[K], table: pa.Table) -> K:
    ref = kind.of("0" * 15 + str(len(list(store.refs()))))
    store.write(ref, Payload(table), Recipe(stage=kind.KIND, version=1, arguments={}, inputs={}), provenance(0.0))
    return ref


def pool_of(*texts: str, prefix: str) -> pa.Table:
    rows, _ = pool_rows(
        [{"problem": t, "gold": "1", "source": "s", "source_id": f"{prefix}_{i}"} for i, t in enumerate(texts)]
    )
    return pa.Table.from_pylist(rows, schema=Pool.schema)


def splits_of(pool: pa.Table, *split: str) -> pa.Table:
    return pa.table({"problem_id": pool["problem_id"], "source": pool["source"], "split": list(split)})


def test_what_is_held_out_is_not_taught(tmp_path: Path) -> None:
    """Word for word, nearly, not at all; and what the study trains on may be taught."""
    study = pool_of(BOX, RING, prefix="OB")
    lesson = pool_of(BOX, f"{BOX} Find the area of the cut.", RING, "What is one more than two?", prefix="M")
    store = Store(tmp_path)
    store.prepare()
    with session(Session(store, Toolbox())):
        taught = kept(store, Splits, splits_of(lesson, *["train"] * 4))
        clear = keep_clear(
            pool=kept(store, Pool, lesson),
            splits=taught,
            studied=kept(store, Pool, study),
            heldout=kept(store, Splits, splits_of(study, "heldout", "train")),
        )
    made = store.read(clear)
    assert made["split"].to_pylist() == ["near_heldout", "near_heldout", "train", "train"]
    assert store.manifest(clear).provenance.notes["near_heldout"] == "2"
    assert trainable(lesson, made, None)["source_id"].to_pylist() == ["M_2", "M_3"]
    assert trainable(lesson, store.read(taught), None).num_rows == 4
