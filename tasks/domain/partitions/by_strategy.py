"""Partition by strategy: rollouts that share equations and named methods. Needs no encoder.

A profile is the set of a trace's normalised equations and method words. Similarity is the Jaccard index of two
profiles. The threshold is calibrated in the same way as the threshold for traces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from tasks.domain.partitions.classes import Classes, alike

# Normalise a trace's equations without a parser: spacing, LaTeX, the order of terms in a sum, and the order of sides.

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
#: A word of three or more letters that is no function name ends a run of an equation.
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
    """Yield the longest runs of numbers, letters, signs and relations that contain a relation; words end a run."""
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
    """Yield `a=b=c` as `a=b` and `b=c`, with normalised sides."""
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
    """Normalise a side: drop multiplication signs and redundant brackets, sort the terms of a sum."""
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
    """Return the signed terms of a sum, outside brackets.

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
    """Return a pattern that matches the same stems but groups them by first letter, which is four times as fast.

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
    """Return similarity_NN of profiles, intersection over union; 0 if both are empty.

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
    """Return classes of traces by their profiles; None without a trace, or for an empty profile.

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
