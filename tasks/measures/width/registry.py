"""Every measure of width, once: what it is of, what it needs and between what it lies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Literal

from tasks.measures.width import semantic_entropy
from tasks.measures.width.distinct import distinct
from tasks.measures.width.expectation_adjusted_distinct import expectation_adjusted_distinct
from tasks.measures.width.expectation_adjusted_distinct import most as most_of_ead
from tasks.measures.width.group import Group
from tasks.measures.width.self_bleu import self_bleu
from tasks.measures.width.utility import utility
from tasks.measures.width.vendi import vendi


@dataclass(frozen=True, slots=True)
class Measure:
    """value: of at least k rollouts, or why it is undefined. of: what it looks at. unclassed: whether a rollout of no
    class is looked at too. least, most: what it lies between, for which intervals are made."""

    name: str
    value: Callable[[Group, int], float | str | None]
    of: Literal["partition", "vectors", "words"]
    most: Callable[[Group, int], float]
    least: float = 0.0
    unclassed: bool = False


MEASURES = (
    Measure("distinct_k", distinct, "partition", lambda group, k: float(k), unclassed=True),
    Measure("utility_k", utility, "partition", lambda group, k: 1.0, unclassed=True),
    Measure("semantic_entropy", semantic_entropy.by_counts, "partition", lambda group, k: log(k)),
    Measure("semantic_entropy_likelihood", semantic_entropy.by_likelihood, "partition", lambda group, k: log(k)),
    Measure("semantic_entropy_sequence", semantic_entropy.by_sequence_likelihood, "partition", lambda group, k: log(k)),
    Measure("vendi", vendi, "vectors", lambda group, k: float(k), least=1.0),
    Measure("self_bleu", self_bleu, "words", lambda group, k: 1.0),
    Measure("ead", expectation_adjusted_distinct, "words", most_of_ead),
)
