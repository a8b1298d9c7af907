"""Evolutionary search driven by hand: who becomes a parent."""

from __future__ import annotations

from collections import Counter

from tasks.domain.search.method import Ask, Candidate
from tasks.domain.search.revision import parents


def attempt(name: str) -> Candidate:
    return Candidate(
        name=name, ask=Ask(), completion="", trace=None, answer=None, finish="", num_tokens=1, logprob_sum=0.0
    )


def test_parents_are_two_attempts_and_drawn_by_fitness() -> None:
    """Of fitness 1, 2 and 5, the second parent among those that are left: a pair without the fittest comes about
    1/8 · 2/7 + 2/8 · 1/6 of the time, within five standard errors."""
    island, fitness = [attempt(name) for name in "abc"], {"a": 0.1, "b": 0.2, "c": 0.5}
    drawn = [parents(island, fitness, (1, 0, child)) for child in range(4000)]
    assert all(len({c.name for c in pair}) == 2 for pair in drawn)
    share = Counter(frozenset(c.name for c in pair) for pair in drawn)[frozenset("ab")] / 4000
    expected = 1 / 8 * 2 / 7 + 2 / 8 * 1 / 6
    assert abs(share - expected) < 5 * (expected * (1 - expected) / 4000) ** 0.5
