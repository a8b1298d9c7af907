"""Normal forms, numbers, forms and answer extraction: what is read from an answer before anything is compared."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.grading.comparison import same_terms
from tasks.domain.grading.formulas import number
from tasks.domain.grading.grading import grade_region
from tasks.domain.grading.reading import number_in_words
from tasks.domain.grading.shapes import shape
from tasks.domain.grading.texts import normalise, repaired
from tasks.domain.problems.problems import answer_type, canonical_gold, problem_id


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3 1/2", Fraction(7, 2)),
        (".5", Fraction(1, 2)),
        ("1.5e3", 1500),
        (r"2 \times 10^{3}", 2000),
        (r"0.\overline{3}", Fraction(1, 3)),
        ("62.5%", Fraction(125, 2)),
        *((text, None) for text in ("6m", "1,23", "12,34", "1/0", "x", "", "1e99999", "7!", "(1,2)", "2n")),
    ],
)
def test_numbers_are_exact(text: str, value: Fraction | None) -> None:
    found = number(normalise(text))
    assert (found and found.value) == value


@settings(deadline=None)
@given(st.integers(-(10**30), 10**30))
def test_every_integer_survives_thousands_separators(value: int) -> None:
    found = number(normalise(f"{value:,}"))
    assert found is not None
    assert found.value == value


@settings(deadline=None)
@given(st.integers(-9999, 9999), st.integers(1, 999))
def test_every_fraction_equals_itself_in_every_notation(top: int, bottom: int) -> None:
    assert same_terms(normalise(f"{top}/{bottom}"), normalise(rf"\frac{{{top}}}{{{bottom}}}"))


@settings(deadline=None)
@given(st.text(max_size=200))
def test_reading_never_fails(text: str) -> None:
    """Whatever a model writes is read without an exception, and normalising is stable in kind."""
    shape(text)
    repaired(normalise(text))
    grade_region(text, "7", "tag")
    grade_region(text, "7", "boxed")


PIECES = r"\frac { } ( ) [ ] | , ^ _ = < \le \begin{pmatrix}1\\2\end{pmatrix} 0.123456789 x i \infty ! \% \sqrt - + * / \cup \pm"
PIECES += (
    r" \text{and} : \pmod{3} _2 \sum_{k=1}^{n} \sum_{k=1}^{i} e 0 7 1e5 ^{\circ} \int_0^1 ' \{ \} ; \lim_{x\to0} \log d"
)
pieces = st.lists(st.sampled_from(PIECES.split()), max_size=9).map(" ".join)


@settings(deadline=None, max_examples=400)
@given(pieces, pieces)
def test_grading_never_raises(answer: str, gold: str) -> None:
    """An exception would end a run that has paid for its rollouts."""
    grade_region(answer, gold, "tag")


def test_forms_of_golds() -> None:
    assert answer_type(r"t(0,4]") == "expression"
    assert answer_type(r"k \geqslant 2") == "interval"
    assert answer_type(r"90^{\circ}$,$60^{\circ}") == "list"
    assert canonical_gold("6764$,$10945") == "6764, 10945"
    assert canonical_gold("0.50") == "0.5"


def test_problem_id_sees_content_only() -> None:
    assert problem_id("a  b\n") == problem_id(" a b")
    assert problem_id("a b") != problem_id("ab")
    assert problem_id("cafe\u0301") == problem_id("caf\u00e9")


@pytest.mark.parametrize(
    ("one", "other"), [("2² + 1", "22 + 1"), ("2⁵", "25"), ("x₁", "x1"), ("2½", "21⁄2"), ("ℝ", "R"), ("①", "1")]
)
def test_texts_that_say_something_else_are_two_problems(one: str, other: str) -> None:
    assert problem_id(f"Find {one}.") != problem_id(f"Find {other}.")


@pytest.mark.parametrize("text", ["a", "and", "one two", "twenty thirty", "hundreds", "", "point five"])
def test_words_that_are_no_number(text: str) -> None:
    assert number_in_words(text) is None
