"""Exact values are equal or they are not: mutations of a value are wrong, other notations of it are correct."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tasks.domain.grading.comparison import decimal_tolerance, same_terms
from tasks.domain.grading.formulas import number, terminates
from tasks.domain.grading.grading import grade_region


def verdict(answer: str, gold: str) -> str:
    return grade_region(answer, gold, "tag").verdict


@pytest.mark.parametrize(
    ("gold", "answer", "reason"),
    [
        (r"\sqrt{2}", "1.41421356", "equal within 7e-09, relative: the digits written"),
        (r"\sqrt{2}", "1.41421", "not equal"),  # 2.5 ppm off: its six digits are cut off, not enough are right
        (r"\sqrt{2}", "1.41421357", "equal within 7e-09, relative: the digits written"),  # one in the last digit
        (r"\sqrt{2}", "1.41421358", "not equal"),  # two in the last digit
        ("1/3", "0.333333", "equal within 1e-06, relative: the digits written"),
        ("1/3", "0.3333334", "equal within 3e-07, relative: the digits written"),
        ("1/3", "0.3333335", "not equal"),
        ("1/3", "0.3333", "not equal"),
        ("1/8", "0.1250000001", "not equal"),  # an exact decimal has no tolerance
        (
            r"\frac{1}{3}\cdot 10^{-9}",
            r"3.33333333 \times 10^{-10}",
            "equal within 3e-09, relative: the digits written",
        ),
        (r"\sqrt{17}", "4.123105625617661", "equal within 1e-13, relative: the digits written"),
        (r"(1, \sqrt{2})", "(1, 1.41421356)", "equal within 7e-09, relative: the digits written"),
        ("0.5", "1/2", "equal"),
    ],
)
def test_tolerance_follows_the_digits_written(gold: str, answer: str, reason: str) -> None:
    assert grade_region(answer, gold, "tag").reason == reason


def test_tolerance_is_one_in_the_last_digit_between_its_limits() -> None:
    written = {text: number(text) for text in ("2.5", "2.50000", "2.500000000", "2." + "5" * 40)}
    found = {text: decimal_tolerance(n) for text, n in written.items() if n is not None}
    assert found["2.5"] == 0, "too few digits to stand for anything else"
    assert found["2.50000"] == Fraction(1, 10**6), "never wider than one in a million"
    assert found["2.500000000"] == Fraction(4, 10**10)
    assert found["2." + "5" * 40] == Fraction(1, 10**13), "double precision is not blamed for its noise"


whole = st.integers(2, 60)
sign = st.sampled_from([-1, 1])


@st.composite
def constants(draw: st.DrawFn) -> tuple[str, str]:
    """(an exact constant, the same with one number in it changed so that the value is another)."""
    a, b, n = draw(whole), draw(whole), draw(st.integers(5, 120))
    step = draw(sign)
    m = n + step
    templates = [
        (rf"\frac{{1}}{{{a}^{{{n}}}}}", rf"\frac{{1}}{{{a}^{{{m}}}}}"),
        (rf"1-{a}^{{-{n}}}", rf"1-{a}^{{-{m}}}"),
        (rf"1-{a}^{{-{n}}}", rf"1+{a}^{{-{n}}}"),
        (rf"\frac{{{b}}}{{{n}!}}", rf"\frac{{{b}}}{{{m}!}}"),
        (rf"\left(\frac{{{a}}}{{{a + 1}}}\right)^{{{n}}}", rf"\left(\frac{{{a}}}{{{a + 1}}}\right)^{{{m}}}"),
        (rf"\sqrt{{{b}}}+{a}^{{-{n}}}", rf"\sqrt{{{b}}}+{a}^{{-{m}}}"),
        (rf"\sqrt{{{b}}}-{a}^{{-{n}}}", rf"\sqrt{{{b}}}+{a}^{{-{n}}}"),
        (rf"\pi^{{{n}}}+{b}", rf"\pi^{{{m}}}+{b}"),
        (rf"\binom{{{2 * n}}}{{{n}}}", rf"\binom{{{2 * n}}}{{{m}}}"),
        (rf"{a}^{{{n}}}x+{b}", rf"{a}^{{{n}}}x-{b}"),
        (rf"x^{{{n}}}-1", rf"x^{{{m}}}-1"),
        (rf"\frac{{x}}{{{a}^{{{n}}}}}", rf"\frac{{x}}{{{a}^{{{m}}}}}"),
        (rf"\{{{a}^{{-{n}}}, 1\}}", rf"\{{{a}^{{-{m}}}, 1\}}"),
        (rf"[0, {a}^{{-{n}}}]", rf"[0, {a}^{{-{m}}}]"),
    ]
    return draw(st.sampled_from(templates))


@settings(deadline=None, max_examples=150)
@given(constants())
def test_a_changed_value_is_wrong(pair: tuple[str, str]) -> None:
    value, changed = pair
    assert verdict(changed, value) == "wrong"
    assert verdict(value, changed) == "wrong"
    assert verdict(value, value) == "correct"


@st.composite
def rewritten(draw: st.DrawFn) -> tuple[str, str]:
    """(a value, the same value in other words)."""
    a, b, n = draw(whole), draw(whole), draw(st.integers(3, 40))
    templates = [
        (rf"\frac{{1}}{{{a}^{{{n}}}}}", rf"{a}^{{-{n}}}"),
        (rf"{a}^{{{n + 1}}}-{a}^{{{n}}}", rf"{a - 1}\cdot {a}^{{{n}}}"),
        (rf"\frac{{{n}!}}{{{n - 1}!}}", str(n)),
        (rf"\binom{{{n}}}{{2}}", rf"\frac{{{n}\cdot {n - 1}}}{{2}}"),
        (rf"\sqrt{{{a * a * b}}}", rf"{a}\sqrt{{{b}}}"),
        (rf"\frac{{{a}}}{{\sqrt{{{b}}}}}", rf"\frac{{{a}\sqrt{{{b}}}}}{{{b}}}"),
        (rf"\sqrt{{{a * a + b}+{2 * a}\sqrt{{{b}}}}}", rf"{a}+\sqrt{{{b}}}"),
        (rf"\ln {a**3}", rf"3\ln {a}"),
        (rf"(x+{a})(x-{a})", rf"x^2-{a * a}"),
        (rf"\frac{{x+{a}}}{{{b}}}", rf"\frac{{x}}{{{b}}}+\frac{{{a}}}{{{b}}}"),
        (rf"({a}+{b}i)^2", rf"{a * a - b * b}+{2 * a * b}i"),
        (rf"\{{{a}, {a + b}\}}", rf"\{{{a + b}, {2 * a}-{a}\}}"),
        (rf"x+{a}y={b}", rf"{2 * b}-{2 * a}y=2x"),
        (rf"{a}{{,}}000", f"{a}000"),
        (rf"{a},\!000", f"{a},000"),
    ]
    return draw(st.sampled_from(templates))


@settings(deadline=None, max_examples=150)
@given(rewritten())
def test_another_notation_of_a_value_is_correct(pair: tuple[str, str]) -> None:
    gold, answer = pair
    assert verdict(answer, gold) == "correct"
    assert verdict(gold, answer) == "correct"


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 9999), st.integers(3, 997), st.integers(6, 8))
def test_a_decimal_is_right_to_its_last_digit_or_wrong(top: int, bottom: int, decimals: int) -> None:
    value = Fraction(top, bottom)
    assume(not terminates(value) and value > 1)
    gold, scale = rf"\frac{{{top}}}{{{bottom}}}", 10**decimals
    nearest = round(value * scale)
    cut_off, right, off = (f"{n // scale}.{n % scale:0{decimals}d}" for n in (value * scale // 1, nearest, nearest + 3))
    assert same_terms(right, gold)
    assert same_terms(cut_off, gold)
    assert not same_terms(off, gold)


@pytest.mark.parametrize("answer", ["9^{9^{9^9}}", r"10^{10^{10}}!", r"\binom{10^9}{5\cdot 10^8}", "e^{10^9}"])
def test_numbers_that_are_too_large_are_not_called_wrong(answer: str) -> None:
    found = grade_region(answer, "1", "tag")
    assert found.verdict == "ungradable" and found.reason.startswith("cannot be decided: ")


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("17.88854382", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}+v=2", r"\begin{pmatrix}3\\4\end{pmatrix}+v=2"),
        (r"\sum_{k=1}^{i} k", "1"),
        ("10x=0i", "15x=1+0i"),
    ],
)
def test_a_matrix_or_a_sum_without_a_value_is_another_value(answer: str, gold: str) -> None:
    assert verdict(answer, gold) == verdict(gold, answer) == "wrong"
