"""What can be asked by name: profiles, questions over them, benchmarks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flows.study.profiles import BENCHMARKS, DEMO
from flows.study.questions import ALL_QUESTIONS, PROFILES
from flows.study.resolve import overridden, profile_named, resolve
from storage.artifacts.store import Store
from storage.errors import UserError

QUESTIONS = (
    "matched-thinking",
    "seeds",
    "diversity-after",
    "n-64",
    "n-128",
    "token-matched",
    "controls",
    "objectives",
    "chain",
)


def test_every_open_question_is_a_profile_by_name() -> None:
    assert {p.name for p in ALL_QUESTIONS} == {f"{study}/{q}" for study in ("qwen-1.5b", "paper") for q in QUESTIONS}
    assert all(profile_named(name) is profile for name, profile in PROFILES.items())


def test_benchmarks_are_chosen_by_name() -> None:
    profile = PROFILES["qwen-1.5b"]
    assert [b.name for b in overridden(profile, ["benchmarks=aime, math500_l5"]).benchmarks] == ["aime", "math500_l5"]
    assert overridden(profile, ["benchmarks=[]"]).benchmarks == overridden(profile, ["benchmarks="]).benchmarks == ()
    assert overridden(PROFILES["small"], ["benchmarks=aime"]).benchmarks == (BENCHMARKS[2],)
    assert overridden(PROFILES["paper/n-64"], ["benchmarks=aime"]).benchmarks[0].group_size == 64
    with pytest.raises(UserError, match="unknown benchmark 'amie'"):
        overridden(profile, ["benchmarks=amie"])


def test_a_benchmark_whose_file_is_not_here_says_how_to_do_without(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no math500.jsonl; .*--set benchmarks=\[\]"):
        resolve(replace(DEMO, benchmarks=BENCHMARKS), Store(tmp_path), model=None, encoder=None, data=tmp_path)


@pytest.mark.parametrize("asked", ["arms=panel,panel", "seeds=0,1,0"])
def test_what_stands_twice_is_refused_and_not_counted_twice(asked: str) -> None:
    """Two seeds that are one would narrow an interval that is of one."""
    with pytest.raises(UserError, match="more than once"):
        overridden(PROFILES["demo"], [asked])
