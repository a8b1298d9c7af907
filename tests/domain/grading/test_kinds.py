"""Answers that are not mathematics: each kind reads its own, in every answer form, and nothing is guessed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import UserError
from tasks.domain.grading.grading import grade_completion, grade_region
from tasks.domain.grading.kinds import OWN, choices, integers, pinned
from tasks.domain.scaffolds import PANEL, THINKING
from tasks.domain.scaffolds import Scaffold as S


def graded(kind: str, answer: str, gold: str) -> set[str]:
    """Verdicts in a tag and in a box."""

    scaffolds = [replace(scaffold, answer_kind=kind) for scaffold in (PANEL, THINKING)]
    return {grade_completion(s, s.answer_in_form(answer, "it is 9"), gold, "stop").verdict for s in scaffolds}


@pytest.mark.parametrize(
    ("kind", "answer", "gold", "verdict"),
    [
        ("integer", "007", "7", "correct"),
        ("integer", "8", "7", "wrong"),
        ("integer", r"\frac{14}{2}", "7", "wrong"),
        ("integer", "seven eighths", "7", "wrong"),
        ("integer", "7", "7.5", "ungradable"),
        ("multiple_choice", "B) forty-two", "B", "correct"),
        ("multiple_choice", "B", "(B)", "correct"),
        ("multiple_choice", "C", "B", "wrong"),
        ("multiple_choice", "A or B", "B", "ambiguous"),
        ("multiple_choice", "forty-two", "B", "wrong"),
        ("multiple_choice", "B", "42", "ungradable"),
        ("exact_text", "New  York", " New York", "correct"),
        ("exact_text", "new york", "New York", "wrong"),
        ("exact_text", "023", "23", "wrong"),
        ("exact_text", "x+1", "1+x", "wrong"),
    ],
)
def test_verdicts_by_hand(kind: str, answer: str, gold: str, verdict: str) -> None:
    assert graded(kind, answer, gold) == {verdict}


@pytest.mark.parametrize("kind", OWN)
def test_what_is_no_answer_is_none_in_every_kind(kind: str) -> None:
    scaffold = S(name="s", template="{problem}", trace_tag=None, answer_form="tag", answer_kind=kind)
    assert grade_completion(scaffold, "so it is B, 7", "7", "stop").verdict == "no_answer"
    assert grade_completion(scaffold, "so <answer>7", "7", "length").verdict == "no_answer"
    assert grade_completion(scaffold, "<answer> </answer>", "7", "stop").verdict == "no_answer"
    assert grade_region(r"\boxed{7", "7", "boxed", "length", kind).verdict == "no_answer"


@given(st.text(max_size=60))
def test_reading_is_total_and_reads_its_own_form_as_itself(text: str) -> None:
    for name, kind in OWN.items():
        for one in kind.read(text):
            assert list(kind.read(one)) == [one], (name, text)


@given(st.integers(-(10**12), 10**12))
def test_an_integer_is_itself_however_its_thousands_are_told_apart(value: int) -> None:
    assert integers(str(value)) == integers(f"{value:,}") == integers(f"${value}$.") == [str(value)]


@given(st.sampled_from("ABCDEFGHIJ"))
def test_every_letter_is_read_in_every_dress(letter: str) -> None:
    small = letter.lower()
    for text in (letter, small, f"({letter})", f"**{letter}**", f"{letter}.", f"The answer is {letter}", f"{small}) 7"):
        assert choices(text) == [letter], text


@pytest.mark.parametrize(
    ("kind", "message"),
    [("intger", "did you mean 'integer'"), ("chemistry", "built in: math, integer, multiple_choice, exact_text")],
)
def test_an_unknown_kind_is_one_sentence(kind: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        pinned(kind)
    assert "\n" not in str(refused.value)
