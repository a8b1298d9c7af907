from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.problems.arithmetic import (
    PRETRAINING_LEVELS,
    SOURCES,
    STEPS_OF_LEVEL,
    Step,
    demo_problems,
    draw_problem,
    level_of,
    pretraining_problem,
    reserved,
)
from tasks.domain.problems.teacher import MIX, teacher_completion, written_out
from tasks.domain.scaffolds import SCAFFOLDS

REPO = Path(__file__).resolve().parents[3]
levels, seeds = st.sampled_from(sorted(STEPS_OF_LEVEL)), st.integers(0, 10_000)
sources = st.sampled_from(list(SOURCES))


def by_hand(text: str) -> int:
    """The gold by reading the text, sentence by sentence: a second way to it that shares no code with the first."""
    start, *sentences = re.split(r"(?<=[.?]) ", text)
    numbers = [int(n) for n in re.findall(r"\d+", start)]
    value = numbers[0] * numbers[1] if "boxes" in start else numbers[0]
    for sentence in sentences:
        n = int((re.findall(r"\d+", sentence) or ["0"])[0])
        if re.search("Add|gets|come", sentence):
            value += n
        elif re.search("Take|loses|go", sentence):
            value -= n
        elif "division" in sentence:
            value %= n
    return value


@settings(deadline=None)
@given(source=sources, level=levels, seed=seeds)
def test_gold_is_what_the_text_says(source: str, level: int, seed: int) -> None:
    p = draw_problem(source, level, random.Random(seed))
    assert p.gold == str(by_hand(p.text))
    assert len(p.steps) == STEPS_OF_LEVEL[level]
    assert all(0 <= s.value <= 99 for s in p.steps)
    assert "  " not in p.text


def test_pool_has_no_text_twice_and_a_tenth_of_level_five() -> None:
    pool = demo_problems(50, 7)
    assert len(pool) == 200 == len({p["problem"] for p in pool}) == len({p["source_id"] for p in pool})
    assert Counter(p["source"] for p in pool) == dict.fromkeys(SOURCES, 50)
    assert sum(p["level"] == "5" for p in pool) == 20
    assert [level_of(i) for i in range(10)] == [1, 2, 3, 4, 1, 2, 3, 4, 1, 5]


def test_pretraining_never_meets_a_problem_of_a_pool() -> None:
    rng = random.Random(0)
    drawn = [pretraining_problem(rng) for _ in range(500)]
    assert {p.level for p in drawn} == set(PRETRAINING_LEVELS)
    assert not any(reserved(p.text) for p in drawn)
    assert all(reserved(p["problem"]) for p in demo_problems(40, 101))


@settings(deadline=None)
@given(source=sources, level=levels, seed=seeds, scaffold=st.sampled_from(list(MIX)))
def test_a_teacher_that_does_not_slip_is_well_formed_and_right(
    source: str, level: int, seed: int, scaffold: str
) -> None:
    rng = random.Random(seed)
    p = draw_problem(source, level, rng)
    text = teacher_completion(p, scaffold, rng, slips=False)
    parsed = SCAFFOLDS[scaffold].parse(text)
    assert parsed.tag_valid or scaffold == "no_panel"
    assert parsed.region is not None and parsed.region.strip() in (p.gold, rf"\boxed{{{p.gold}}}")
    assert parsed.trace


@settings(deadline=None)
@given(left=st.integers(-20, 110), right=st.integers(2, 9), op=st.sampled_from(["+", "-", "*", " mod "]))
def test_a_step_written_out_has_the_same_value(left: int, right: int, op: str) -> None:
    step = Step(left, op, right)
    a, sign, b = re.fullmatch(r"(-?\d+)([+-])(-?\d+)", written_out(step)).groups()  # type: ignore[union-attr]
    assert int(a) + (int(b) if sign == "+" else -int(b)) == step.value
