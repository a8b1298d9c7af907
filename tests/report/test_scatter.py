from __future__ import annotations

import re
from itertools import pairwise

from tasks.report.scatter import Spot, scatter


def test_points_lie_where_their_values_are_and_carry_their_names() -> None:
    drawn = scatter(
        [Spot("GRPO", (10.0, 5.0, 15.0), (-5.0, None, None)), Spot("a<b", (0.0, None, None), (5.0, 4.0, 6.0))],
        0,
        "x",
        "y",
    )
    assert drawn is not None and "a&lt;b" in drawn and ">GRPO</text>" in drawn
    (left, low), (right, high) = (tuple(map(float, p)) for p in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', drawn))
    assert left < right and low < high, "drawn from the top"
    assert drawn.count('class="tie"') == 2


def test_names_do_not_stand_in_one_another() -> None:
    same = [Spot(f"objective {i}", (1.0 + i / 1000, None, None), (1.0, None, None)) for i in range(9)]
    heights = [float(y) for y in re.findall(r'y="([\d.]+)" text-anchor="start"', scatter(same, 0, "x", "y") or "")]
    assert len(heights) == 9 and min(b - a for a, b in pairwise(sorted(heights))) >= 10


def test_nothing_to_draw_is_null() -> None:
    assert scatter([], 0, "x", "y") is None
