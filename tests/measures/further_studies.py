"""Simulated studies of known truth for benchmarks/further_figures.py: token lengths, two screenings, several seeds, and
a chain from diversity to gain.

Every function gives tables as the project's measures read them; a study is told from another by its `source` or `arm`.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.schemas import Bands
from storage.estimates import band
from tests.measures.simulated import POPULATIONS, G, group_rows, logits_of, names, seed_scale, sigmoid

SIZE = 16  # rollouts of a problem of the chain
#: Shifts of the logits of three sources, from the hardest to the easiest.
SOURCES = (-1.0, 0.0, 1.0)


def length_studies(n: int, trials: int, ratio: float, seed: int, copies: int = 1) -> tuple[pa.Table, dict[str, str]]:
    """(rollouts of two arms, one source a study; the cluster of a problem that has near-duplicates). A problem's lengths
    are its own under each arm, harder ones longer."""
    rng, total = np.random.default_rng(seed), n * trials

    def of_each(distinct: np.ndarray) -> np.ndarray:
        return np.repeat(distinct, copies)

    logits = of_each(logits_of("ordinary", rng, total // copies))
    parts = []
    for arm, more in (("a", 1.0), ("b", ratio)):
        chance = sigmoid(logits + of_each(rng.normal(0, 0.3, total // copies)))
        mean = 5.5 + 0.5 * (1 - chance) + of_each(rng.normal(0, 0.2, total // copies)) + np.log(more)
        many = total * G
        about = {"arm": [arm] * many, "step": pa.array([1] * many, pa.int32()), "adapter": [arm] * many}
        where = {"problem_id": np.repeat(names(total), G), "source": np.repeat(np.repeat(names(trials), n), G)}
        drawn = {
            "seed": pa.array([0] * many, pa.int64()),
            "rollout": pa.array(np.tile(np.arange(G), total), pa.int32()),
            "correct": rng.random(many) < np.repeat(chance, G),
            "num_tokens": (np.exp(np.repeat(mean, G) + rng.normal(0, 0.5, many)) + 1).astype(np.int64),
            "finish": ["stop"] * many,
        }
        parts.append(pa.table(about | where | drawn))
    return pa.concat_tables(parts), dict(zip(names(total), of_each(names(total)[::copies]), strict=True))


def screenings(population: str, n: int, trials: int, seed: int) -> tuple[pa.Table, pa.Table]:
    """(bands, groups drawn anew) of one policy, 8 rollouts each; one arm a study."""
    rng, total = np.random.default_rng(seed), n * trials
    chance = POPULATIONS[population](rng, total)
    arm, problem = np.repeat(names(trials), n), names(total)
    first, second = (rng.binomial(G, chance) for _ in range(2))
    bands = pa.table(
        {"problem_id": problem, "source": ["s"] * total, "arm": arm}
        | {"group_size": pa.array([G] * total, pa.int32()), "num_correct": pa.array(first, pa.int32())}
        | {"band": [band(int(c), G) for c in first]}
    ).cast(Bands.schema)
    again = group_rows("", 0, "", problem, "s", G, second)
    return bands.append_column("cluster", pa.array(problem)), again.set_column(0, "arm", pa.array(arm))


def seeded_study(
    n: int, seeds: int, sd_pp: float, shift: float, rng: np.random.Generator, population: str = "ordinary"
) -> tuple[pa.Table, Any]:
    """(groups, chances) of one study: arms `a` and `b`, three sources of n problems each; chances(arm, seeds) draws
    more seeds' chances (S, P) of the same problems."""
    scale = seed_scale(population, sd_pp)
    logits = np.concatenate([logits_of(population, rng, n) + move for move in SOURCES])
    source = np.repeat(["s0", "s1", "s2"], n)
    own = {arm: rng.normal(0, 0.3, 3 * n) + move for arm, move in (("a", shift), ("b", 0.0))}

    def chances(arm: str, many: int) -> np.ndarray:
        return sigmoid(logits + own[arm] + scale * rng.normal(size=(many, 1)))

    parts = [
        group_rows(arm, 1, f"{arm}{s}", names(3 * n), source, G, rng.binomial(G, chance))
        for arm in own
        for s, chance in enumerate(chances(arm, seeds))
    ]
    return pa.concat_tables(parts), chances


def chain_studies(
    n: int, trials: int, seeds: int, effect: float, seed: int, by_seed: float = 0.02
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """(groups, bands, diversity), one source a study of n problems under two arms. Diversity falls with the chance of a
    correct rollout; every standard deviation of its own part adds `effect` to a gain, give or take `by_seed` from seed
    to seed."""
    rng, total = np.random.default_rng(seed), n * trials
    source, problem = np.repeat(names(trials), n), names(total)
    easy, groups, bands, spread = rng.normal(-0.5, 1.2, total), [], [], []
    for arm in ("a", "b"):
        own, start = rng.normal(size=total), sigmoid(easy + rng.normal(0, 0.3, total))
        first = rng.binomial(G, start)
        about = {"problem_id": problem, "source": source, "arm": [arm] * total}
        counted = {"group_size": pa.array([G] * total, pa.int32()), "num_correct": pa.array(first, pa.int32())}
        bands.append(pa.table(about | counted | {"band": [band(int(c), G) for c in first]}).cast(Bands.schema))
        value = {"diversity": 0.2 - 0.15 * start + 0.03 * own, "window": ["whole"] * total}
        spread.append(pa.table(about | value | {"step": pa.array([0] * total, pa.int32())}))
        groups.append(group_rows(arm, 0, "", problem, source, SIZE, rng.binomial(SIZE, start)))
        for s in range(seeds):
            slope = effect + np.repeat(by_seed * rng.normal(size=trials) if seeds > 1 else np.zeros(trials), n)
            chance = np.clip(start + 0.1 + slope * own, 0, 1)
            groups.append(group_rows(arm, 9, f"{arm}{s}", problem, source, SIZE, rng.binomial(SIZE, chance)))
    joined = pa.concat_tables(groups)
    return joined.append_column("cluster", joined["problem_id"]), pa.concat_tables(bands), pa.concat_tables(spread)
