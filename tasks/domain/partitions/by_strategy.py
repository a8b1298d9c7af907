"""By strategy: rollouts that share their equations and the methods they name. Needs no encoder.

A profile is the set of a trace's equations, brought to one form, and of its method words. Two are as similar as their
Jaccard index; from which on they are one strategy is calibrated as the threshold of traces is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tasks.domain.partitions.classes import Classes, alike
from tasks.domain.partitions.equations import equations

Profile = frozenset[str]
_DASHES = str.maketrans("-–", "  ")
#: Stems of what a method is called, whatever else is said of it.
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
    """A pattern of the same matches that tries few of the stems at a letter: all of them take four times as long.

    >>> _by_first_letter(["list", "case", "lcm"])
    'l(?:ist|cm)|c(?:ase)'
    """
    after: dict[str, list[str]] = {}
    for stem in stems:
        after.setdefault(stem[0], []).append(stem[1:])
    return "|".join(f"{letter}(?:{'|'.join(rest)})" for letter, rest in after.items())


_METHOD = re.compile(rf"(?<![a-z])(?:{_by_first_letter(METHODS.split('|'))})")


def profile(trace: str) -> Profile:
    """Equations and method words of a trace; empty where it has neither.

    >>> sorted(profile("By Vieta's formulas the roots add up to 5, so a + b = 5; AM-GM bounds their product."))
    ['5=a+b', 'am gm', 'vieta']
    """
    said = " ".join(trace.lower().translate(_DASHES).split())
    return equations(trace) | frozenset(_METHOD.findall(said))


def jaccard(profiles: Sequence[Profile]) -> np.ndarray:
    """Similarity_NN of profiles: what two share over what either has; 0 where neither has anything.

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
    """Classes of traces by their profiles; null without a trace, or where it has no equation and names no method.

    >>> by_strategy(["x = 2", None, "2=x", "By symmetry.", "Well."], 0.5)
    [0, None, 0, 1, None]
    """
    told: dict[str | None, Profile] = {trace: profile(trace) for trace in {*traces} if trace is not None}
    profiles = [told.get(trace, frozenset()) for trace in traces]
    kept = sorted((place for place, one in enumerate(profiles) if one), key=lambda place: sorted(profiles[place]))
    classes: Classes = [None] * len(profiles)
    for place, found in zip(kept, alike(jaccard([profiles[i] for i in kept]), threshold), strict=True):
        classes[place] = found
    places: dict[int, int] = {}
    return [None if one is None else places.setdefault(one, len(places)) for one in classes]
