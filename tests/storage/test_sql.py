"""Rules that questions in SQL share with Python: the same answer on every group."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.estimates import band, pass_all_k, pass_at_k
from storage.reading.views import views
from storage.sql import query
from tasks.domain.statistics.means import combined

GROUPS = [(n, c) for n in range(1, 20) for c in range(n + 1)]


def test_the_band_rule_is_the_macro() -> None:
    groups = pa.table({"n": [n for n, _ in GROUPS], "c": [c for _, c in GROUPS]})
    assert query("select band(c, n) as band from groups", groups=groups)["band"].to_pylist() == [
        band(c, n) for n, c in GROUPS
    ]


@pytest.mark.parametrize("k", [1, 2, 3, 8, 19, 20])
def test_pass_at_k_is_the_macro(k: int) -> None:
    groups = pa.table({"n": [n for n, _ in GROUPS], "c": [c for _, c in GROUPS]})
    found = query("select pass_at_k(n, c, $k) as p from groups", {"k": k}, groups=groups)["p"].to_pylist()
    n_P, c_P = (np.array([group[i] for group in GROUPS]) for i in (0, 1))
    assert found == pass_at_k(n_P, c_P, [k])[:, 0].tolist()


@settings(deadline=None, max_examples=25)  # each opens a database
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_the_interval_of_sql_is_that_of_the_stages(values: list[float]) -> None:
    with views({}, {"t": pa.table({"place": range(len(values)), "x": values})}) as asked:
        [ends] = asked.sql("select interval_over_problems(list(x order by place)) as ends from t")["ends"].to_pylist()
    found = combined([(1.0, np.array(values)[None, :, None])], [False], reach=1.0).interval()
    assert ends == (None if len(values) == 1 else pytest.approx([float(end[0]) for end in found]))


# pass@k against worked values, brute force, and what must hold for any group.


counts = st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))


@given(counts)
@settings(deadline=None)
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_one(case: tuple[int, int, int]) -> None:
    n, c, k = case
    exact = 1 - math.comb(n - c, k) / math.comb(n, k)
    assert pass_at_k(np.array([n]), np.array([c]), [k])[0, 0] == pytest.approx(exact, abs=1e-12)
    assert pass_all_k(np.array([n]), np.array([c]), [k])[0, 0] == pytest.approx(math.comb(c, k) / math.comb(n, k))


def test_k_beyond_n_is_null_not_a_number() -> None:
    found = pass_at_k(np.array([2, 4]), np.array([2, 0]), [3])
    assert found.tolist() == [[None], [0.0]]
    with pytest.raises(ValueError, match="at least 1"):
        pass_at_k(np.array([2]), np.array([1]), [0])
    with pytest.raises(ValueError, match="fewer rollouts"):
        pass_at_k(np.array([2]), np.array([3]), [1])
