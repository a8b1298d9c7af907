"""Expected bands: the fit by hand and against known truths, with problems that nothing solves or without."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tasks.domain.statistics.difficulty import BetaBinomial, expectations, fit

G = 16
Pool = Callable[[np.random.Generator, int], np.ndarray]


def told(counts: list[tuple[int, int]]) -> dict[tuple[str, str | None], dict]:
    return {(r["metric"], r.get("band")): r for r in expectations(counts, G)}


def ends(row: dict) -> tuple[float, float]:
    """The interval of a row, or the bounds that its reason tells."""
    if row.get("low") is not None:
        return row["low"], row["high"]
    low, high = re.findall(r"\d\.\d{3}", row["reason"])
    return float(low) - 5e-4, float(high) + 5e-4


def drawn(model: BetaBinomial, problems: int, seed: int) -> list[tuple[int, int]]:
    rng = np.random.default_rng(seed)
    chance = np.where(rng.random(problems) < model.zero, 0.0, rng.beta(model.a, model.b, problems))
    return [(8, int(c)) for c in rng.binomial(8, chance)]


def test_problems_that_nothing_solves_are_found_and_are_not_called_mislabelled() -> None:
    model = BetaBinomial(2.0, 2.0, zero=0.6)
    found, plain = fit(drawn(model, 2000, 0)), fit(drawn(BetaBinomial(0.5, 1.5), 2000, 0))
    assert found is not None
    assert plain is not None
    assert found.zero == pytest.approx(0.6, abs=0.05)
    assert plain.zero < 0.15
    # of a beta alone with as many all_zero groups, one in six would be live at the training size
    rows = told(drawn(model, 2000, 0))
    assert rows["mislabelled", "all_zero"]["estimate"] < 0.12


@pytest.mark.parametrize("model", [BetaBinomial(0.277, 1.322), BetaBinomial(1.0, 1.0, zero=0.6)], ids=str)
def test_intervals_hold_what_is_expected(model: BetaBinomial) -> None:
    """Of these very problems for those in a band; of the population for expected_live. 40 studies of 60 problems."""
    held: dict[str, list[bool]] = {"expected_live": [], "mislabelled": [], "live_in_band": []}
    for seed in range(40):
        counts = drawn(model, 60, seed)
        rows = told(counts)
        for metric, band, mine in (
            ("live_in_band", "variance", [p for p in counts if 0 < p[1] < 8]),
            ("mislabelled", None, [p for p in counts if p[1] in (0, 8)]),
        ):
            truth = np.mean([float(model.live_given(*pair, G)) for pair in mine])
            row = rows[metric, band]
            low, high = ends(row)
            held[metric].append(bool(low <= truth <= high))
            assert low < row["estimate"] < high
            assert row.get("low") is None and row["reason"].startswith("no interval: rollouts so few do not tell it")
        row = rows["expected_live", None]
        held["expected_live"].append(row["low"] <= model.live_share(G) <= row["high"])
    assert min(map(np.mean, held.values())) >= 0.82  # three standard errors under 0.95


def always_or_never(rng: np.random.Generator, problems: int) -> np.ndarray:
    """Two problems in five always solved, three in ten never."""
    kind = rng.random(problems)
    return np.where(kind < 0.4, 1.0, np.where(kind < 0.7, 0.0, rng.beta(2.0, 2.0, problems)))


def hard_or_easy(rng: np.random.Generator, problems: int) -> np.ndarray:
    return np.where(rng.random(problems) < 0.5, 0.05, 0.6)


@pytest.mark.parametrize("pool", [always_or_never, hard_or_easy])
def test_intervals_hold_for_pools_that_are_spread_like_no_beta(pool: Pool) -> None:
    """100 problems, 20 studies. The truth of a count is what a large pool says of problems with this count."""
    many = pool(np.random.default_rng(0), 200_000)
    lively, seen = 1 - many**G - (1 - many) ** G, np.array([many**c * (1 - many) ** (8 - c) for c in range(9)])
    given = seen @ lively / seen.sum(axis=1)
    held: dict[str, list[bool]] = {"expected_live": [], "mislabelled": [], "live_in_band": []}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        correct = rng.binomial(8, pool(rng, 100))
        dead = np.isin(correct, (0, 8))
        truths = {"mislabelled": given[correct[dead]].mean(), "live_in_band": given[correct[~dead]].mean()}
        for row in expectations([(8, int(c)) for c in correct], G):
            if row["metric"] in held and row.get("band") in (None, "variance"):
                truth = truths.get(row["metric"], lively.mean())
                low, high = ends(row)
                held[row["metric"]].append(low <= truth <= high)
    assert min(map(np.mean, held.values())) >= 0.8  # three standard errors under 0.95


def test_near_duplicates_say_no_more_than_one() -> None:
    """Every problem five times over: the likelihood grows fivefold, and so does what it does not tell from the best.
    Before, intervals of expected bands were as narrow as those of five times as many problems."""
    counts = [(8, c) for c in [0] * 12 + [1, 2, 3, 5, 7] * 2 + [8] * 6]
    alone, as_if_others, alike = (
        {(r["metric"], r.get("band")): r for r in expectations(many, G, times)}
        for many, times in ((counts, 1.0), (counts * 5, 1.0), (counts * 5, 5.0))
    )
    for key in (("expected_live", None), ("mislabelled", None)):
        (low, high), *others = (ends(found[key]) for found in (alone, as_if_others, alike))
        width, (narrow, same) = high - low, (one[1] - one[0] for one in others)
        assert same == pytest.approx(width, rel=0.1)
        assert narrow < 0.7 * width
