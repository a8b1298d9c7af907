"""Step searches driven by hand: a step is a letter, and what is written so far has a score."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tasks.domain.search.method import Ask, Candidate
from tasks.domain.search.registry import method_named
from tasks.domain.search.revision import parents
from tasks.domain.search.steps import DVTS, MCTS, Beam, Particles, StepSearch

LETTERS = "abcdefghij"


def driven(method: StepSearch, score: Callable[[str], float]) -> tuple[list[list[str]], str | None]:
    """Paths asked for, round by round, and the answer. The letter of a step is that of its index."""
    rounds, seen = method.rounds("?"), list[Candidate]()
    asked, by_name = next(rounds), dict[str, Candidate]()
    told: list[list[str]] = []
    while True:
        told.append([])
        for ask in asked.asks:
            parent = by_name[ask.parents[0]] if ask.parents else None
            path = (parent.completion if parent else "") + LETTERS[ask.index]
            told[-1].append(path)
            c = Candidate(
                name=f"{ask.context('p')}/{ask.index}",
                ask=ask,
                completion=path,
                trace=None,
                answer=path if len(path) == 3 else None,
                finish="stop",
                num_tokens=len(path),
                logprob_sum=-float(len(path)),
                ended=len(path) == 3,
                scores=((*parent.scores,) if parent else ()) + (score(path),),
            )
            if c.name not in by_name:
                by_name[c.name] = c
                seen.append(c)
        try:
            asked = rounds.send(seen)
        except StopIteration as end:
            return told, end.value.answer if end.value else None


def like(target: str) -> Callable[[str], float]:
    """The share of letters that are the target's."""
    return lambda path: sum(a == b for a, b in zip(path, target, strict=False)) / len(path)


def test_a_beam_goes_on_with_the_best_of_all() -> None:
    told, answer = driven(Beam(by="process", over="last", beams=2, expand=2, depth=4), like("bbb"))
    assert told == [["a", "b", "c", "d"], ["ba", "bb", "aa", "ab"], ["bba", "bbb", "baa", "bab"]]
    assert answer == "bbb"


def test_trees_of_dvts_do_not_compete() -> None:
    told, answer = driven(DVTS(by="process", over="last", trees=2, expand=2, depth=4), like("bbb"))
    assert told == [["a", "b", "c", "d"], ["ba", "bb", "ca", "cb"], ["bba", "bbb", "cba", "cbb"]]
    assert answer == "bbb"


def test_tree_search_expands_what_promises_most() -> None:
    greedy = MCTS(by="outcome", expand=2, simulations=3, explore=0.0)
    told, answer = driven(greedy, lambda path: 0.9 if path.startswith("b") else 0.1)
    assert told == [["a", "b"], ["ba", "bb"], ["baa", "bab"]] and answer == "baa"
    wide = MCTS(by="outcome", expand=2, simulations=3, explore=100.0)
    told, _ = driven(wide, lambda path: 0.9 if path.startswith("b") else 0.1)
    assert told == [["a", "b"], ["ba", "bb"], ["aa", "ab"]]


def test_particles_go_on_in_proportion_to_their_weight() -> None:
    told, answer = driven(Particles(by="process", over="last", particles=4, depth=4), lambda p: float(p[0] == "b"))
    assert told[0] == ["a", "b", "c", "d"]
    assert Counter(path[0] for path in told[1]) == {"b": 4} and answer is not None and answer.startswith("b")


@pytest.mark.parametrize(("over", "expected"), [("last", 0.8), ("least", 0.5), ("product", 0.4)])
def test_what_a_process_models_scores_come_to(over: str, expected: float) -> None:
    method = method_named(f"beam:by=process:over={over}")
    assert isinstance(method, StepSearch)
    (ask, *_) = next(method.rounds("?")).asks
    path = replace(attempt("x/0"), ask=ask, scores=(0.5, 0.8))
    assert method.values([path]) == {"x/0": pytest.approx(expected)}


# Evolutionary search driven by hand: who becomes a parent.


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
