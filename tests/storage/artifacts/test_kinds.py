"""Kinds: a wrong artifact in a wrong place is a type error, rows of a wrong shape are refused at the store's door."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.artifacts.fingerprint import Ambiguous, fingerprint
from storage.artifacts.manifest import Recipe, provenance
from storage.artifacts.ref import Ref
from storage.artifacts.rows import Payload, WrongRows
from storage.artifacts.schemas import Bands, JointBands, PassAtK, Splits
from storage.artifacts.store import Store
from storage.errors import UserError


def put(store: Store, ref: Ref, table: pa.Table) -> None:
    store.prepare()
    recipe = Recipe(stage="made_up", version=1, arguments={}, inputs={})
    store.write(ref, Payload(table), recipe, provenance(0.0))


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"problem_id": ["p"], "source": ["s"]}),
        pa.table({"problem_id": ["p"], "source": ["s"], "split": ["train"], "x": [1]}),
        pa.table({"problem_id": ["p"], "source": ["s"], "split": [1]}),
        pa.table({"problem_id": ["p"], "source": ["s"], "split": pa.nulls(1, pa.string())}),
        pa.table([["p"], ["s"], ["a"], ["b"]], ["problem_id", "source", "split", "split"]),
    ],
)
def test_rows_of_another_shape_are_refused(tmp_path: Path, table: pa.Table) -> None:
    store, ref = Store(tmp_path), Splits.of("0" * 16)
    with pytest.raises(WrongRows, match="rows are not of kind splits"):
        put(store, ref, table)
    assert store.refs() == []


def test_references_are_read_as_what_they_are() -> None:
    text = "joint_bands-4f1c2a9b00d1e2f3"
    assert type(Ref.parse(text)) is JointBands and Bands.parse(text) == Ref("joint_bands", "4f1c2a9b00d1e2f3")
    with pytest.raises(UserError, match="is an artifact of kind joint_bands, but this needs kind passk"):
        PassAtK.parse(text)
    assert type(Ref.parse("riddles-4f1c2a9b00d1e2f3")) is Ref


# One spelling for every recipe, on every machine; a refusal for whatever has none.


def test_known_value_of_the_hash() -> None:
    # sha256 of {"a":1}: computed outside this project with `printf '{"a":1}' | sha256sum`
    assert fingerprint({"a": 1}) == "015abd7f5cc57a2d"


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_order_of_keys_does_not_matter(mapping: dict[str, int]) -> None:
    assert fingerprint(mapping) == fingerprint(dict(reversed(mapping.items())))


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (True, 1), ("1", 1), (None, "None"), ([1], [[1]]), (0.1, 0.2)])
def test_unlike_values_differ(one: object, other: object) -> None:
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize(
    "value", [{1, 2}, object(), lambda: 0, float("nan"), float("inf"), Path("x"), {1: "a"}, b"bytes"]
)
def test_what_has_no_spelling_is_refused(value: object) -> None:
    with pytest.raises(Ambiguous):
        fingerprint({"argument": value})
