"""Intervals that agree with the correction of their family."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.statistics.paired_tests import adjust, levels_of_tests


@pytest.mark.parametrize("method", ["holm", "bh"])
@given(p_values=st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=8))
def test_an_interval_of_that_level_excludes_zero_if_and_only_if_the_corrected_p_is_small(
    method: str, p_values: list[float]
) -> None:
    """An interval of level L excludes 0 if and only if its p-value is below 1 − L."""
    for p, corrected, level in zip(p_values, adjust(p_values, method), levels_of_tests(p_values, method), strict=True):
        assert corrected is not None
        if abs(corrected - 0.05) > 1e-9:
            assert (p < 1 - level) is (corrected < 0.05)
        assert level >= 0.95 - 1e-12
