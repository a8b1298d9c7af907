"""Equations: what is passed over to find them faster holds none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.partitions.by_strategy import _pairs, _plain, _runs, by_strategy, equations

WORDS = ["x", "ab", "so", "sin", "sinus", "hence", "Ann", "mod", "xthe", "the3"]
SIGNS = ["=", "<=", ">", "+", "-", "(", ")", " ", "\n", ".", ":", "×", r"\cdot", r"\frac{1}{2}"]
PIECES = st.sampled_from([*WORDS, *SIGNS, "12", "3.5", "1,000"])


@given(st.lists(PIECES, max_size=40).map("".join))
def test_words_and_lines_end_what_they_ended(text: str) -> None:
    """As if the whole text was read token by token."""
    assert equations(text) == frozenset(one for run in _runs(_plain(text)) for one in _pairs(run))


def test_a_trace_that_stands_there_twice_is_read_once_and_is_of_one_class() -> None:
    assert by_strategy(["1+2=3", None, "1+2=3", "4*4=16", "well"], 0.5) == [0, None, 0, 1, None]
