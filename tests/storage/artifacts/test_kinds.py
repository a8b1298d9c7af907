"""Kinds: a wrong artifact in a wrong place is a type error, rows of a wrong shape are refused at the store's door."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from storage.artifacts.kinds import Bands, JointBands, PassAtK, Splits
from storage.artifacts.manifest import Recipe, provenance
from storage.artifacts.ref import Ref
from storage.artifacts.rows import Payload, WrongRows
from storage.artifacts.store import Store
from storage.errors import UserError

REPO = Path(__file__).resolve().parents[3]
RIGHT = """
from storage.artifacts.kinds import BandCrosstab, PassAtK
from storage.artifacts.kinds import Tables

def tables(passk: PassAtK, crosstab: BandCrosstab, **others) -> Tables:
    return Tables(crosstab=crosstab, passk=passk, **others)
"""
WRONG = RIGHT.replace("crosstab=crosstab", "crosstab=passk")


def put(store: Store, ref: Ref, table: pa.Table) -> None:
    store.prepare()
    recipe = Recipe(stage="made_up", version=1, arguments={}, inputs={})
    store.write(ref, Payload(table), recipe, provenance(0.0))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pa.table({"problem_id": ["p"], "source": ["s"]}), "split is lacking"),
        (pa.table({"problem_id": ["p"], "source": ["s"], "split": ["train"], "x": [1]}), "x is no column of it"),
        (pa.table({"problem_id": ["p"], "source": ["s"], "split": [1]}), "split is int64, not string"),
        (pa.table({"problem_id": ["p"], "source": ["s"], "split": pa.nulls(1, pa.string())}), "null in 1 rows"),
        (pa.table([["p"], ["s"], ["a"], ["b"]], ["problem_id", "source", "split", "split"]), "split is there 2 times"),
    ],
)
def test_rows_of_another_shape_are_refused(tmp_path: Path, table: pa.Table, words: str) -> None:
    store, ref = Store(tmp_path), Splits.of("0" * 16)
    with pytest.raises(WrongRows, match=words):
        put(store, ref, table)
    assert store.refs() == []


def test_references_are_read_as_what_they_are() -> None:
    text = "joint_bands-4f1c2a9b00d1e2f3"
    assert type(Ref.parse(text)) is JointBands and Bands.parse(text) == Ref("joint_bands", "4f1c2a9b00d1e2f3")
    with pytest.raises(UserError, match="is an artifact of kind joint_bands, but this needs kind passk"):
        PassAtK.parse(text)
    assert type(Ref.parse("riddles-4f1c2a9b00d1e2f3")) is Ref
