"""The page of the 30B mixture is what its command makes of what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.thirty_b import (
    HERE,
    PUBLISHED_PANEL,
    at_rate,
    by_places,
    page,
    rounded_cache,
    screened_lengths,
    screening,
)
from benchmarks.thirty_b_gpus import GPU_GIB, planned, rows_of
from benchmarks.thirty_b_lengths import alone, covered, drawn, longest_first, screened, shared_out

REPO = Path(__file__).resolve().parents[2]


def test_the_page_is_made_by_its_command(shared: Path) -> None:
    known = json.loads((REPO / HERE / "measured.json").read_text())
    made = page(known, shared / "data/published", (REPO / HERE / "peers.md").read_text())
    assert (REPO / HERE.with_suffix(".md")).read_text() == made


def test_what_is_computed_is_near_what_was_measured(shared: Path) -> None:
    """Sampling of the measured steps, to the five seconds that beginning and ending take."""
    known = json.loads((REPO / HERE / "measured.json").read_text())
    ms = {int(n): value for n, value in known["positions"]["ms"].items()}
    for step, lengths in zip(known["steps"]["rows"], drawn(shared / "data/published"), strict=True):
        assert -0.5 < step["generate"] - alone(lengths, ms) < 6


def test_more_engines_are_bounded_by_the_longest_rollout() -> None:
    """Ten of 100 positions and one of 1,000, at 1 ms alone and 2 ms in company of ten: 100 positions of 11 at 2.1 ms by
    the line through both, then 900 alone; on two engines six of 100 stand beside the long one."""
    lengths, ms = np.array([100] * 10 + [1000]), {1: 1.0, 11: 2.1}
    assert alone(lengths, ms) == pytest.approx(0.21 + 0.9)
    assert shared_out(lengths, 2, ms) == pytest.approx(100 * (1 + 0.11 * 5) / 1000 + 0.9)


def test_known_lengths_are_dealt_out_longest_first() -> None:
    """900 and 100 on one engine and 800 and 200 on the other, at 1 ms alone and 2 ms in company; as they come, the long
    ones would share one."""
    lengths, ms = np.array([900, 100, 800, 200]), {1: 1.0, 2: 2.0}
    assert shared_out(lengths, 2, ms) == pytest.approx(0.8 * 2 + 0.1)
    assert longest_first(lengths, 2, ms) == pytest.approx(max(0.2 * 2 + 0.7, 0.1 * 2 + 0.7))


def test_a_screening_ends_with_few_at_once() -> None:
    """Two places at 2 ms, one at 1 ms: 300 positions of both, in which 100, 200 and 300 of three rollouts pass, and the
    last 400 of the fourth alone."""
    assert screened([100, 300, 200, 700], 2, {1: 1.0, 2: 2.0}) == pytest.approx(0.3 * 2 + 0.7)
    assert screened([100, 300, 200], 2, {1: 1.0, 2: 2.0}) == pytest.approx(0.3 * 2)
    lengths = list(range(1, 60))
    assert screened(lengths, 100, {1: 1.0, 100: 2.0}) == pytest.approx(alone(np.array(lengths), {1: 1.0, 100: 2.0}))


def test_a_screening_takes_less_at_its_middle_s_rate_than_with_its_end_and_of_the_same_rollouts(shared: Path) -> None:
    """The first was of the slice's problems, 2 % shorter than those of the second: 9.3 times faster, and it is 9.1."""
    known, published = json.loads((REPO / HERE / "measured.json").read_text()), shared / "data/published"
    tokens, rate = sum(screened_lengths(published, "panel")), known["screening"]["slices"][-1]["tokens_per_second"]
    seconds, low, high = at_rate(published, "panel", rate)
    assert seconds == pytest.approx(tokens / rate) and low < seconds < high
    assert f"{seconds:.0f} s [{low:.0f}, {high:.0f}] for 877 x 8" in screening(known, published)
    assert PUBLISHED_PANEL / seconds == pytest.approx(9.09, abs=0.01)


def test_a_tenth_is_kept_with_keys_and_values_in_fp8_alone(shared: Path) -> None:
    """With the end of a full cache, whose positions take longer: not too little is told."""
    known, published = json.loads((REPO / HERE / "measured.json").read_text()), shared / "data/published"
    fp8, lengths, ms = known["screening"]["fp8"], screened_lengths(published, "panel"), by_places(known)
    whole = screened(lengths, fp8["places"], ms | {fp8["places"]: 1000 * fp8["places"] / fp8["tokens_per_second"]})
    full = screened(lengths, max(ms), ms)
    assert whole < PUBLISHED_PANEL / 10 < full
    assert f"**{whole:.0f} s: {PUBLISHED_PANEL / whole:.1f} times" in rounded_cache(known, published)


def test_one_gpu_is_told_what_the_plan_counts() -> None:
    """The row said the weights alone for the sampler, and what a learner took that had a GPU to itself."""
    memory = planned()
    assert memory.sampler == pytest.approx(59.8, abs=0.05) and memory.sampler + memory.least > GPU_GIB
    known = json.loads((REPO / HERE / "measured.json").read_text())
    assert memory.learner == pytest.approx(known["steps"]["rows"][1]["trainer_gib"], rel=0.1)


def test_a_mean_of_four_steps_has_an_interval_that_covers(shared: Path) -> None:
    """Of steps as the training would have had, as far as their lengths make them differ."""
    known = json.loads((REPO / HERE / "measured.json").read_text())
    ms = {int(n): value for n, value in known["positions"]["ms"].items()}
    training = np.array([alone(own, ms) for own in drawn(shared / "data/published", 100)])
    assert covered(training, 4) >= 0.92
    two, four, eight = rows_of(known, drawn(shared / "data/published"))
    walls = [step["wall"] for step in known["steps"]["rows"][1:]]
    assert two.step_N == pytest.approx(walls) and four.step_N == pytest.approx(walls)
    assert len(eight.step_N) == 4
