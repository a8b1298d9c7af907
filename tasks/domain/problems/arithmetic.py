"""Synthetic word problems in whole-number arithmetic, by level, for the demo model.

The names of the four sources start with `synthetic_`, so that nobody takes them for competition sets. Problems of
levels 1 to 5 need 1, 2, 3, 4 or 6 steps. The demo model was pretrained on four fifths of all texts. The rest, chosen by
hash, is reserved for pools. Level 5 occurs in pools only.
"""

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from storage.errors import UserError

STEPS_OF_LEVEL = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6}
MAX_VALUE = 99
_RESERVED_OF_256 = 51
_MAX_DRAWS = 10_000


@dataclass(frozen=True, slots=True)
class Step:
    """One operation: `left op right = value`, with all numbers in 0..MAX_VALUE. op: `+`, `-`, `*` or ` mod `."""

    left: int
    op: str
    right: int

    @property
    def value(self) -> int:
        return apply(self.left, self.op, self.right)


@dataclass(frozen=True, slots=True)
class ArithmeticProblem:
    """A problem. steps: the solution. Each step starts from the value before it; the last value is the gold."""

    source: str
    level: int
    text: str
    steps: tuple[Step, ...]

    @property
    def gold(self) -> str:
        return str(self.steps[-1].value)


def apply(left: int, op: str, right: int) -> int:
    """Return the value of one operation.

    >>> [apply(17, "+", 6), apply(17, "-", 6), apply(7, "*", 6), apply(17, " mod ", 5)]
    [23, 11, 42, 2]
    """
    return {"+": left + right, "-": left - right, "*": left * right, " mod ": left % right}[op]


def demo_problems(per_source: int, seed: int, levels: Sequence[int] = ()) -> list[dict[str, str]]:
    """Return a pool of `per_source` problems of each source, with distinct texts. A larger pool begins with the smaller
    one. Keys: problem, gold, source, source_id, level. levels: used in turn; if empty, every tenth problem of a source
    has level 5, and the others have levels 1 to 4 in turn."""
    rows: list[dict[str, str]] = []
    seen: set[str] = set()
    for source in SOURCES:
        for index in range(per_source):
            level = levels[index % len(levels)] if levels else level_of(index)
            p = next(p for p in _draws(seed, source, index, level) if p.text not in seen and reserved(p.text))
            seen.add(p.text)
            about = {"source": source, "source_id": f"{source}-{seed}-{index}", "level": str(p.level)}
            rows.append({"problem": p.text, "gold": p.gold, **about})
    return rows


def level_of(index: int) -> int:
    """Return the level of the problem at this index of its source.

    >>> [level_of(i) for i in range(12)]
    [1, 2, 3, 4, 1, 2, 3, 4, 1, 5, 2, 3]
    """
    return 5 if index % 10 == 9 else 1 + (index - index // 10) % 4


def reserved(text: str) -> bool:
    """Return whether a text is reserved for pools. The hash of the text decides."""
    return hashlib.sha256(text.encode()).digest()[0] < _RESERVED_OF_256


def draw_problem(source: str, level: int, rng: random.Random) -> ArithmeticProblem:
    text, steps = SOURCES[source](STEPS_OF_LEVEL[level], rng)
    return ArithmeticProblem(source, level, text, steps)


def _draws(seed: int, source: str, index: int, level: int) -> Iterator[ArithmeticProblem]:
    rng = random.Random(f"{seed}/{source}/{index}")
    for _ in range(_MAX_DRAWS):
        yield draw_problem(source, level, rng)
    raise UserError(f"{source}: no new problem of level {level} in {_MAX_DRAWS} random draws; make a smaller pool")


def _changes(value: int, n: int, rng: random.Random) -> tuple[Step, ...]:
    """Return n additions and subtractions from `value`, within 1..MAX_VALUE. No step undoes the step before it."""
    steps: list[Step] = []
    while len(steps) < n:
        step = Step(value, rng.choice("+-"), rng.randint(2, 9))
        undone = steps and steps[-1].op != step.op and steps[-1].right == step.right
        if 1 <= step.value <= MAX_VALUE and not undone:
            steps.append(step)
            value = step.value
    return tuple(steps)


def _sentences(steps: tuple[Step, ...], gain: str, loss: str) -> str:
    return " ".join((gain if s.op == "+" else loss).format(s.right) for s in steps)


def _chain(n: int, rng: random.Random) -> tuple[str, tuple[Step, ...]]:
    start = rng.randint(11, 79)
    steps = _changes(start, n, rng)
    return f"Start with {start}. {_sentences(steps, 'Add {}.', 'Take {}.')} What is the result?", steps


def _story(n: int, rng: random.Random) -> tuple[str, tuple[Step, ...]]:
    start = rng.randint(11, 79)
    steps = _changes(start, n, rng)
    who, what = rng.choice(("Mia", "Tom", "Zoe", "Leo")), rng.choice(("apples", "pens", "coins", "shells"))
    changes = _sentences(steps, f"{who} gets {{}}.", f"{who} loses {{}}.")
    return f"{who} has {start} {what}. {changes} How many {what} now?", steps


def _boxes(n: int, rng: random.Random) -> tuple[str, tuple[Step, ...]]:
    first = Step(rng.randint(2, 9), "*", rng.randint(2, 9))
    steps = (first, *_changes(first.value, n - 1, rng))
    what = rng.choice(("apples", "pens", "coins", "shells"))
    changes = _sentences(steps[1:], " {} come.", " {} go.").replace("  ", " ")
    return f"There are {first.left} boxes of {first.right} {what}.{changes} How many {what} in all?", steps


def _mod(n: int, rng: random.Random) -> tuple[str, tuple[Step, ...]]:
    start = rng.randint(11, 79)
    steps = _changes(start, n - 1, rng)
    last = Step(steps[-1].value if steps else start, " mod ", rng.choice((3, 4, 5, 10)))
    changes = _sentences(steps, " Add {}.", " Take {}.").replace("  ", " ")
    return f"Start with {start}.{changes} What remains after division by {last.right}?", (*steps, last)


SOURCES: dict[str, Callable[[int, random.Random], tuple[str, tuple[Step, ...]]]] = {
    "synthetic_chains": _chain,
    "synthetic_stories": _story,
    "synthetic_boxes": _boxes,
    "synthetic_mod": _mod,
}
