"""Kinds and folders that got another name: what a store of before holds under the former one is found and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.artifacts.fingerprint import fingerprint
from storage.artifacts.kinds import Rollouts, SolvedBy
from storage.artifacts.manifest import Recipe, identity_of
from storage.artifacts.provenance import provenance
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import columns
from storage.artifacts.store import Payload, Store
from storage.reading.catalog import ask
from storage.reading.recipes import report_inputs
from storage.records.overrides import FOLDERS, newest_overrides, put_overrides
from tasks.engines.toolbox import Toolbox
from tasks.measures.pass_at_k import compare_solved
from tasks.stage import Session, session

ROLLOUTS = (Rollouts.of("a" * 16),)


def put(store: Store, ref: Ref) -> None:
    store.prepare()
    recipe = Recipe(stage="made_up", version=1, arguments={}, inputs={})
    store.write(ref, Payload(SolvedBy.schema.empty_table()), recipe, provenance(0.0))


def test_a_kind_is_read_under_its_former_name(tmp_path: Path) -> None:
    store, of_before, of_today = Store(tmp_path), Ref.parse(f"hard_problems-{'1' * 16}"), SolvedBy.of("2" * 16)
    assert type(of_before) is SolvedBy and of_before.kind == "hard_problems" and of_before.view == "solved_by"
    put(store, of_before)
    put(store, of_today)
    assert store.refs("solved_by") == [of_before, of_today] == store.refs()
    assert store.refs("hard_problems") == [of_before]
    assert ask(tmp_path, "select count(*) as n from solved_by")["n"].to_pylist() == [0]
    with pytest.raises(TypeError, match="the kind hard_problems is SolvedBy already"):

        class Other(Ref, kind="hard_problems", schema=columns("n int")):
            """A kind under another's former name."""


def test_what_a_renamed_stage_made_is_not_made_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    given = (compare_solved.version, {"rollouts": ROLLOUTS}, {})
    former = Ref.parse(f"hard_problems-{fingerprint(identity_of('find_hard_problems', *given))}")
    with session(Session(store, Toolbox(), planning=True)):
        today = compare_solved(rollouts=ROLLOUTS)
        put(store, former)
        assert today.kind == "solved_by" and compare_solved(rollouts=ROLLOUTS) == former
        put(store, today)
        assert compare_solved(rollouts=ROLLOUTS) == today


def test_a_report_of_before_is_asked_by_the_names_of_today() -> None:
    recipe = Recipe(stage="render_report", version=6, arguments={}, inputs={"hard": ["hard_problems-x"], "pool": ["p"]})
    assert report_inputs(recipe) == {"solved_by": ["hard_problems-x"], "pool": ["p"]}


def test_overrides_of_before_hold_until_there_are_newer_ones(tmp_path: Path) -> None:
    assert newest_overrides(tmp_path) == ("", "")
    former = tmp_path / FOLDERS[-1] / f"{1:020d}.jsonl"
    former.parent.mkdir()
    former.write_text("before")
    assert newest_overrides(tmp_path) == ("before", str(former))
    later = put_overrides(tmp_path, "now")
    assert later.parent.name == "overrides" and newest_overrides(tmp_path) == ("now", str(later))
