"""Divide the N rollouts of a problem into classes: by equal answers, similar traces or shared strategies.

Classes are numbered from 0 in order of first occurrence; None is a rollout without a class. A chain of equal answers is
one class. A chain of similar traces could join two different traces, so any two traces of a class must be similar
(docs/analysis.md).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from storage.errors import UserError
from tasks.domain.grading.comparison import same_terms
from tasks.domain.grading.formulas import number
from tasks.domain.grading.values import start_work

Classes = list[int | None]


def joined(alike_NN: np.ndarray) -> list[int]:
    """Return the connected components of a symmetric relation. The order of rollouts affects only the numbering.

    >>> joined(np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]], bool))
    [0, 1, 0]
    """
    from scipy.sparse.csgraph import connected_components

    return in_order(connected_components(alike_NN, directed=False)[1]) if len(alike_NN) else []


def alike(similarity_NN: np.ndarray, threshold: float) -> list[int]:
    """Return classes in which all pairs reach the threshold of similarity (complete linkage, most similar first).

    Ties are joined in input order. Callers sort their input, so that the order of rollouts has no effect.

    >>> alike(np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.8], [0.1, 0.8, 1.0]]), 0.7)  # a chain, but its ends are not alike
    [0, 0, 1]
    """
    if len(similarity_NN) < 2:
        return [0] * len(similarity_NN)
    return cut(merges(similarity_NN), max(1.0 - threshold, 0.0))


def merges(similarity_NN: np.ndarray) -> np.ndarray:
    """Return the cluster tree: one merge per row, the nearest first, with its distance in column 2. N ≥ 2."""
    from scipy.cluster.hierarchy import linkage

    distance = 1.0 - similarity_NN[np.triu_indices(len(similarity_NN), 1)]
    return linkage(np.maximum(distance, 0.0), method="complete")


def cut(tree: np.ndarray, distance: float) -> list[int]:
    """Return the classes of a hierarchical clustering after all merges up to this distance."""
    from scipy.cluster.hierarchy import fcluster

    return in_order(fcluster(tree, distance, criterion="distance"))


def in_order(label_N: np.ndarray) -> list[int]:
    """Renumber labels by first occurrence.

    >>> in_order(np.array([7, 3, 7]))
    [0, 1, 0]
    """
    places: dict[int, int] = {}
    return [places.setdefault(int(label), len(places)) for label in label_N]


# Partition by trace. Two traces are similar if they are as close as a trace and its reworded version. The threshold is
# calibrated for each encoder on a labelled set (`labelled`).


def similarities(vectors_ND: np.ndarray) -> np.ndarray:
    """Return the cosine similarities of unit vectors."""
    wide_ND = np.asarray(vectors_ND, np.float64)
    return wide_ND @ wide_ND.T


def by_trace(vectors_ND: np.ndarray, threshold: float) -> list[int]:
    """Return classes of traces from their unit vectors, one row per trace.

    >>> by_trace(np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]]), 0.7)
    [0, 1, 0]
    """
    order_N = np.lexsort(np.asarray(vectors_ND).T)
    found_N = np.empty(len(order_N), np.int64)
    found_N[order_N] = alike(similarities(np.asarray(vectors_ND)[order_N]), threshold)
    return in_order(found_N)


# Partition by answer. A class holds rollouts whose answers the grader treats as equal.

Pair = tuple[str, str]
#: Pairs of answers → whether each pair is equal.
Equal = Callable[[Sequence[Pair]], Sequence[bool]]
#: Integers in this form are equal only if their texts are equal.
INTEGER = re.compile(r"-?[1-9]\d{0,17}|0")


def same_answers(texts: Mapping[str, Sequence[str]], equal: Equal, by_value: bool = True) -> list[tuple[str, str, str]]:
    """Return (problem, answer, the first equal answer) for each answer that equals an earlier one of its problem.

    by_value: the answers are mathematics; numbers are then compared here, without calling `equal`.

    >>> same_answers({"p": ["0.5", "1/2", "7"], "q": ["even", "is even"]}, lambda pairs: [True] * len(pairs))
    [('p', '1/2', '0.5'), ('q', 'is even', 'even')]
    """
    joined: dict[str, list[Pair]] = {}
    undecided: dict[str, list[Pair]] = {}
    for problem, several in texts.items():
        pairs = list(combinations(several, 2))
        verdicts = [_equal_values(a, b) if by_value else None for a, b in pairs]
        joined[problem] = [pair for pair, same in zip(pairs, verdicts, strict=True) if same]
        undecided[problem] = [pair for pair, same in zip(pairs, verdicts, strict=True) if same is None]
    distinct = list(dict.fromkeys(pair for pairs in undecided.values() for pair in pairs))
    found = dict(zip(distinct, equal(distinct) if distinct else (), strict=True))
    return [
        (problem, text, first)
        for problem, several in texts.items()
        for text, first in _firsts(several, [*joined[problem], *(p for p in undecided[problem] if found[p])]).items()
        if text != first
    ]


def _equal_values(one: str, other: str) -> bool | None:
    """Return whether two different texts have the same value, by exact arithmetic; None if that is unknown."""
    if INTEGER.fullmatch(one) and INTEGER.fullmatch(other):
        return False
    if number(one) is not None and number(other) is not None:
        start_work()
        return bool(same_terms(one, other)) and bool(same_terms(other, one))
    return None


def _firsts(texts: Sequence[str], equals: Iterable[Pair]) -> dict[str, str]:
    """Return text → the first text of its class. A chain of equal pairs is one class."""
    place = {text: i for i, text in enumerate(texts)}
    equal_NN = np.zeros((len(texts), len(texts)), bool)
    for one, other in equals:
        equal_NN[place[one], place[other]] = True
    classes = joined(equal_NN | equal_NN.T)
    return {text: texts[classes.index(one)] for text, one in zip(texts, classes, strict=True)}


# Partition by strategy. A class holds rollouts that share equations and named methods; no encoder is needed.
#
# The profile of a trace is the set of its normalised equations and method words. Two profiles are compared by the
# Jaccard index, with a threshold that is calibrated as for traces.
#
# Equations are normalised without a parser: spacing, LaTeX, the order of terms in a sum, and the order of the sides.

_SPELT = {
    "cdot": "*",
    "times": "*",
    "div": "/",
    "le": "<=",
    "leq": "<=",
    "ge": ">=",
    "geq": ">=",
    "equiv": "=",
    "pi": " pi ",
    "sqrt": " sqrt",
    "pmod": " mod ",
}
_SIGNS = str.maketrans(
    {"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "≡": "=", "{": "(", "}": ")", "[": "(", "]": ")", "$": " "}
    | {"²": "^2", "³": "^3", "≤": "<=", "≥": ">=", "√": "sqrt", "π": "pi"}
)
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_COMMAND = re.compile(r"\\([A-Za-z]+|.)")
_TOKEN = re.compile(
    r"(?P<operand>\d+(?:,\d{3})*(?:\.\d+)?|[A-Za-z]+)|(?P<relation><=|>=|[=<>])|(?P<sign>[-+*/^()!_])"
    r"|(?P<space>[ \t]+)|(?P<other>.)",
    re.DOTALL,
)
_FUNCTIONS = {"sin", "cos", "tan", "log", "sqrt", "gcd", "lcm", "mod"}
#: A word of three or more letters ends an equation, unless it is the name of a function.
_END = re.compile(rf"(?<![A-Za-z])(?!(?:{'|'.join(sorted(_FUNCTIONS))})(?![A-Za-z]))[A-Za-z]{{3,}}")
_RELATION = re.compile("[=<>]")
_SHORT_WORDS = re.compile("a[mnst]|b[ey]|do|go|he|i[fnst]|m[ey]|no|o[fnr]|so|to|u[ps]|we", re.IGNORECASE)
_FLIPPED = {">": "<", ">=": "<="}


def equations(text: str) -> frozenset[str]:
    r"""Return the normalised equations and inequalities of a text.

    >>> sorted(equations(r"So \(x + 2 = 5\), that is 5=2+x. Then $\frac{1}{2} \cdot 6 = 3 > 1$ and we are done."))
    ['(1/2)6=3', '1<3', '2+x=5']
    >>> sorted(equations("Bo: 69+7=76. The sum of a and b is even, 10 * 10 = 100."))
    ['10*10=100', '69+7=76']
    """
    lines = (line for line in _plain(text).split("\n") if _RELATION.search(line))
    parts = (part for line in lines for part in _END.split(line) if _RELATION.search(part))
    return frozenset(one for part in parts for run in _runs(part) for one in _pairs(run))


def _plain(text: str) -> str:
    if "\\" not in text:
        return text.translate(_SIGNS)
    while (shorter := _FRACTION.sub(r"((\1)/(\2))", text)) != text:
        text = shorter
    return _COMMAND.sub(lambda m: _SPELT.get(m[1], " "), text).translate(_SIGNS)


def _runs(text: str) -> Iterator[list[str]]:
    """Yield the longest runs of numbers, letters and signs that contain a relation sign. Words end a run."""
    run: list[str] = []
    apart = False
    for found in _TOKEN.finditer(text):
        kind, token = found.lastgroup, found[0]
        if kind == "space":
            apart = True
            continue
        word = kind == "operand" and token.isalpha() and (len(token) > 2 or _SHORT_WORDS.fullmatch(token) is not None)
        ends = kind == "other" or (word and token not in _FUNCTIONS)
        fresh = kind == "operand" and apart and run and (run[-1][-1].isalnum() or run[-1] in (")", "!"))
        if (ends or fresh) and run:
            yield run
            run = []
        if not ends:
            run.append(token.replace(",", ""))
        apart = False
    if run:
        yield run


def _pairs(run: list[str]) -> Iterator[str]:
    """Split `a=b=c` into `a=b` and `b=c`, and normalise their sides."""
    sides, relations = [""], []
    for token in run:
        if token[0] in "=<>":
            relations.append(token)
            sides.append("")
        else:
            sides[-1] += token
    formed = [_side(side) for side in sides]
    for (left, right), relation in zip(pairwise(formed), relations, strict=True):
        if left and right:
            first, last = (right, left) if relation in _FLIPPED or (relation == "=" and right < left) else (left, right)
            yield f"{first}{_FLIPPED.get(relation, relation)}{last}"


@lru_cache(maxsize=1 << 12)  # traces of one problem are processed together; 1 << 16 entries used 14 MB
def _side(text: str) -> str:
    """Normalise one side: drop multiplication signs and redundant brackets, and sort the terms of a sum."""
    if text.count("(") != text.count(")"):
        text = re.sub("[()]", "", text)
    text = re.sub(r"(?<!\d)\*|\*(?!\d)", "", text.rstrip("+-*/^_("))
    text = re.sub(r"(?<![A-Za-z])\((\w+)\)(?![\w(])", r"\1", text)
    while text.startswith("(") and _closes(text) == len(text) - 1:
        text = text[1:-1]
    return "".join(sorted(_terms(text))).removeprefix("+")


def _closes(text: str) -> int:
    depth = 0
    for place, sign in enumerate(text):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if not depth:
            return place
    return -1


def _terms(text: str) -> list[str]:
    """Return the signed terms of a sum. Sums in brackets are not split.

    >>> _terms("a-(b+c)+2")
    ['+a', '-(b+c)', '+2']
    """
    terms, depth = [""], 0
    for sign in text:
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign in "+-" and depth == 0 and terms[-1] not in ("", "+", "-") and terms[-1][-1] not in "/^":
            terms.append("")
        terms[-1] += sign
    return [term if term[:1] in ("+", "-") else f"+{term}" for term in terms if term]


Profile = frozenset[str]
_DASHES = str.maketrans("-–", "  ")
#: Stems of the names of methods.
METHODS = (
    "am gm|arithmetic progression|arithmetic sequence|arithmetic series|average|backwards|base case|bayes|"
    "bijection|binomial|case|cauchy|ceva|chinese remainder|combin|complement|complet\\w+ the square|complex|"
    "congruen|conjugate|contradict|coordinat|counterexample|cross multipl|cross product|cyclic|de moivre|"
    "derangement|derivative|determinant|diagonal|differen\\w+ of|differentiat|digit|discriminant|distribut|"
    "dot product|double count|eliminat|enumerat|euclid|euler|expand|expected|factor|fermat|gcd|"
    "generating function|geometric|graph|greatest common|guess|heron|inclusion exclusion|induct|inequality|"
    "integra|invariant|inverse|jensen|lagrange|law of cosine|law of sine|lcm|least common|linearity|list|"
    "logarithm|long division|matri|mean value|menelaus|midpoint|modul|monoton|multinomial|newton|odd|orthogon|"
    "pair|parity|partial fraction|pascal|permut|pigeonhole|polar|power of a point|prime|product rule|ptolemy|"
    "pythag|quadratic formula|ratio|recur|reflect|remainder|residue|rotat|shoelace|similar|slope|stars and bars|"
    "stewart|substitut|symmetr|system|tangent|telescop|trial|triangle inequality|trig|unit rate|vector|vieta|"
    "weigh|wilson"
)


def _by_first_letter(stems: Sequence[str]) -> str:
    """Return a pattern for the same stems, grouped by first letter. Such a pattern matches four times as fast.

    >>> _by_first_letter(["list", "case", "lcm"])
    'l(?:ist|cm)|c(?:ase)'
    """
    after: dict[str, list[str]] = {}
    for stem in stems:
        after.setdefault(stem[0], []).append(stem[1:])
    return "|".join(f"{letter}(?:{'|'.join(rest)})" for letter, rest in after.items())


_METHOD = re.compile(rf"(?<![a-z])(?:{_by_first_letter(METHODS.split('|'))})")


def profile(trace: str) -> Profile:
    """Return the equations and method words of a trace, possibly none.

    >>> sorted(profile("By Vieta's formulas the roots add up to 5, so a + b = 5; AM-GM bounds their product."))
    ['5=a+b', 'am gm', 'vieta']
    """
    words = " ".join(trace.lower().translate(_DASHES).split())
    return equations(trace) | frozenset(_METHOD.findall(words))


def jaccard(profiles: Sequence[Profile]) -> np.ndarray:
    """Return the similarities of profiles: intersection over union, or 0 if both are empty.

    >>> jaccard([frozenset("ab"), frozenset("bc")]).round(3).tolist()
    [[1.0, 0.333], [0.333, 1.0]]
    """
    words = {word: place for place, word in enumerate(sorted(frozenset().union(*profiles)))}
    has_NV = np.zeros((len(profiles), len(words)))
    for row, one in zip(has_NV, profiles, strict=True):
        row[[words[word] for word in one]] = 1.0
    shared_NN = has_NV @ has_NV.T
    size_N = has_NV.sum(axis=1)
    return shared_NN / np.maximum(size_N[:, None] + size_N[None, :] - shared_NN, 1.0)


def by_strategy(traces: Sequence[str | None], threshold: float) -> Classes:
    """Return classes of traces by their profiles. Missing traces and empty profiles have no class.

    >>> by_strategy(["x = 2", None, "2=x", "By symmetry.", "Well."], 0.5)
    [0, None, 0, 1, None]
    """
    known: dict[str | None, Profile] = {trace: profile(trace) for trace in {*traces} if trace is not None}
    profiles = [known.get(trace, frozenset()) for trace in traces]
    kept = sorted((place for place, one in enumerate(profiles) if one), key=lambda place: sorted(profiles[place]))
    classes: Classes = [None] * len(profiles)
    for place, found in zip(kept, alike(jaccard([profiles[i] for i in kept]), threshold), strict=True):
        classes[place] = found
    places: dict[int, int] = {}
    return [None if one is None else places.setdefault(one, len(places)) for one in classes]


# Calibration: the threshold above which two traces count as the same, with its precision and recall.


@dataclass(frozen=True, slots=True, eq=False)
class LabelledGroup:
    """The traces of one problem with labels. similarity_NN: similarities; solution_N: the label of each trace's
    solution. Groups are compared by identity, so that results can be cached."""

    similarity_NN: np.ndarray
    solution_N: Sequence[str]


class Counts(NamedTuple):
    """Numbers of pairs of labelled traces. joined, apart: what the partition did; true, false: whether it was right."""

    true_joined: int = 0
    false_joined: int = 0
    false_apart: int = 0
    true_apart: int = 0

    @property
    def f1(self) -> float:
        """Return the harmonic mean of precision and recall; 0 if no pair is joined.

        >>> Counts(3, 1, 2, 9).f1
        0.6666666666666666
        """
        return 2 * self.true_joined / max(2 * self.true_joined + self.false_joined + self.false_apart, 1)


def counted(group: LabelledGroup, threshold: float) -> Counts:
    """Count the pairs of one group under the partition of this threshold.

    >>> counted(LabelledGroup(np.array([[1, 0.9, 0.2], [0.9, 1, 0.1], [0.2, 0.1, 1]]), "aab"), 0.5)
    Counts(true_joined=1, false_joined=0, false_apart=0, true_apart=2)
    """
    if len(group.solution_N) < 2:
        return Counts()
    near = _tree(group)[:, 2] <= max(1.0 - threshold, 0.0)
    return _counted(group, int(near.sum()))


@lru_cache
def _tree(group: LabelledGroup) -> np.ndarray:
    return merges(group.similarity_NN)


@lru_cache(1 << 14)  # only some thresholds change a group's classes, and leave-one-out repeats them
def _counted(group: LabelledGroup, merged: int) -> Counts:
    """Count the pairs after the first `merged` merges of the cluster tree."""
    tree = _tree(group)
    at_N = np.array(cut(tree, tree[merged - 1, 2] if merged else -1.0))
    solution_N = np.array(list(group.solution_N))
    one, other = np.triu_indices(len(at_N), 1)
    apart, different = at_N[one] != at_N[other], solution_N[one] != solution_N[other]
    return Counts(*np.bincount(2 * apart + different, minlength=4).tolist())


def summed(counts: Sequence[Counts]) -> Counts:
    return Counts(*map(sum, zip(*counts, strict=True)))


def counts_at(groups: Sequence[LabelledGroup], threshold: float) -> Counts:
    return summed([counted(group, threshold) for group in groups])


def threshold_of(groups: Sequence[LabelledGroup]) -> float:
    """Return the threshold with the highest F1, midway between two observed similarities. Of equally good thresholds,
    return the highest. Raise UserError if the groups have no equal pair, or no different pair."""
    pairs = counts_at(groups, -np.inf)
    if not pairs.true_joined or not pairs.false_joined:
        raise UserError("labelled traces: calibration needs pairs of equal and of different traces")
    seen = np.unique(np.concatenate([g.similarity_NN[np.triu_indices(len(g.similarity_NN), 1)] for g in groups]))
    between = (seen[1:] + seen[:-1]) / 2 if len(seen) > 1 else seen
    return float(max(between, key=lambda t: (counts_at(groups, t).f1, t)))


def left_out(groups: Sequence[LabelledGroup]) -> list[Counts]:
    """Count each problem's pairs with the threshold calibrated on the other problems (leave-one-out)."""
    return [counted(group, threshold_of([*groups[:i], *groups[i + 1 :]])) for i, group in enumerate(groups)]
