"""Reuse, staleness and damage, on two toy stages: the promises that every stage inherits."""

from pathlib import Path

import pyarrow as pa
import pytest

from storage.artifacts.ref import Ref
from storage.artifacts.rows import columns
from storage.artifacts.store import Payload, Store
from storage.errors import UserError
from tasks.engines.toolbox import Toolbox
from tasks.stage import Progress, Session, Stage, session, stage, store

CALLS: list[str] = []


class Numbers(Ref, kind="numbers", schema=columns("n big")):
    """Toy."""


class Doubles(Ref, kind="doubles", schema=columns("n big")):
    """Toy."""


class Sums(Ref, kind="sums", schema=columns("n big")):
    """Toy."""


@stage(Numbers, version=1)
def make_numbers(*, n: int, rate: float = 0.5) -> pa.Table:
    CALLS.append("numbers")
    return pa.table({"n": list(range(n))})


@stage(Doubles, version=1)
def double_numbers(*, numbers: Numbers) -> Payload:
    CALLS.append("doubles")
    return Payload(pa.table({"n": [2 * n for n in store().read(numbers)["n"].to_pylist()]}), notes={"engine": "none"})


@stage(Sums, version=1)
def sum_all(*, parts: tuple[Ref, ...]) -> pa.Table:
    CALLS.append("sums")
    return pa.table({"n": [sum(sum(store().read(p)["n"].to_pylist()) for p in parts)]})


@pytest.fixture(autouse=True)
def _clean() -> None:
    CALLS.clear()


def run(root: Path, n: int = 3) -> tuple[Ref, list[str]]:
    events: list[Progress] = []
    at = Store(root)
    at.prepare()
    with session(Session(at, Toolbox(), listener=events.append)):
        numbers = make_numbers(n=n)
        ref = sum_all(parts=(numbers, double_numbers(numbers=numbers)))
    return ref, [f"{e.event} {e.ref.kind}" for e in events if e.event in ("made", "reused")]


def test_the_second_run_makes_nothing(tmp_path: Path) -> None:
    ref, first = run(tmp_path)
    assert first == ["made numbers", "made doubles", "made sums"]
    assert Store(tmp_path).read(ref).to_pylist() == [{"n": 3 + 6}]
    assert run(tmp_path) == (ref, ["reused numbers", "reused doubles", "reused sums"])


def test_a_deleted_artifact_is_remade_with_what_follows_from_it(tmp_path: Path) -> None:
    run(tmp_path)
    at = Store(tmp_path)
    at.delete(at.refs("doubles")[0])
    assert run(tmp_path)[1] == ["reused numbers", "made doubles", "made sums"]
    at.delete(at.refs("numbers")[0])
    assert run(tmp_path)[1] == ["made numbers", "made doubles", "made sums"]


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "manifest"])
def test_a_damaged_artifact_is_never_served(tmp_path: Path, damage: str) -> None:
    run(tmp_path)
    at = Store(tmp_path)
    data = at.path(at.refs("doubles")[0]) / "data.parquet"
    if damage == "truncate":
        data.write_bytes(data.read_bytes()[:-10])
    elif damage == "flip":
        raw = bytearray(data.read_bytes())
        raw[len(raw) // 2] ^= 1
        data.write_bytes(raw)
    elif damage == "remove":
        data.unlink()
    else:
        (data.parent / "manifest.json").write_text("{")
    fresh = Store(tmp_path)
    assert not fresh.has(Ref.parse(data.parent.name))
    with pytest.raises(UserError, match="damaged"):
        fresh.read(Ref.parse(data.parent.name))
    assert run(tmp_path)[1] == ["reused numbers", "made doubles", "made sums"]


def test_arguments_and_versions_are_identity(tmp_path: Path) -> None:
    with session(Session(Store(tmp_path), Toolbox(), planning=True)):
        refs = {make_numbers(n=3), make_numbers(n=4), make_numbers(n=3, rate=1.0), make_numbers(n=3, rate=0.5)}
        newer = Stage(make_numbers.kind, 2, make_numbers.function, "numbers")(n=3)
    assert len(refs) == 3 and newer not in refs
    assert CALLS == []
