"""One spelling for every recipe, on every machine; a refusal for whatever has none."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.artifacts.fingerprint import Ambiguous, canonical, derived_seed, fingerprint

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@dataclass(frozen=True)
class Config:
    steps: int
    rate: float


def test_known_value_of_the_hash() -> None:
    # sha256 of {"a":1}: computed outside this project with `printf '{"a":1}' | sha256sum`
    assert fingerprint({"a": 1}) == "015abd7f5cc57a2d"


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_order_of_keys_does_not_matter(mapping: dict[str, int]) -> None:
    assert fingerprint(mapping) == fingerprint(dict(reversed(mapping.items())))


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (True, 1), ("1", 1), (None, "None"), ([1], [[1]]), (0.1, 0.2)])
def test_unlike_values_differ(one: object, other: object) -> None:
    assert fingerprint(one) != fingerprint(other)


def test_dataclasses_carry_their_name() -> None:
    assert canonical(Config(1, 2.0)) == {"is": "Config", "steps": 1, "rate": {"float": "2.0"}}


@pytest.mark.parametrize(
    "value", [{1, 2}, object(), lambda: 0, float("nan"), float("inf"), Path("x"), {1: "a"}, b"bytes"]
)
def test_what_has_no_spelling_is_refused(value: object) -> None:
    with pytest.raises(Ambiguous):
        fingerprint({"argument": value})


def test_hash_seed_does_not_matter() -> None:
    code = "from storage.artifacts.fingerprint import fingerprint, derived_seed; print(fingerprint({'b': [1, 'x'], 'a': None}), derived_seed(1, 'p', 2))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": s},
            cwd=Path(__file__).parents[3],
        ).stdout
        for s in ("0", "1", "42")
    }
    assert seen == {f"{fingerprint({'b': [1, 'x'], 'a': None})} {derived_seed(1, 'p', 2)}\n"}
