"""Near-duplicates: problems that share most of their wording, or a long beginning.

A shingle is five consecutive words, not counting notes (whole sentences in parentheses). Two problems are
near-duplicates if the longer one has at least half (`CONTAINED`) of the shorter one's shingles. Two problems are also
near-duplicates if they share a beginning of `STEM_SHINGLES` that is a third of the shorter one. Problems that differ
only in numbers are found too, because most shingles contain no number.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import pyarrow as pa

WORDS = 5
CONTAINED = 0.5
STEM_SHINGLES = 25
STEM_CONTAINED = 0.33
MIN_SHARED = 4
#: A shingle in more problems than this is a common phrase ("find the number of …") and is no sign of duplicates.
COMMON = 60
_SILENT = re.compile(
    r"\\(?:left|right|cdots|dots|ldots|quad|qquad|displaystyle|text|mathrm|mathbf|begin|end|dfrac|tfrac|frac|circ)\b"
)
_SPACING = re.compile(r"\\[,;:!> ]|[$~]|\\[()\[\]]|\\(?:left|right|quad|qquad|displaystyle)(?![A-Za-z])")
_NOTE = re.compile(r"\((?=[A-Z])(?:[^()]|\([^()]*\))*\.\s*\)")


@dataclass(frozen=True, slots=True)
class Pair:
    """Positions of two texts in their lists, and the share of the shorter text's shingles that the other text has."""

    first: int
    second: int
    similarity: float


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Return the shingles of a text. Shingles of short texts have fewer words.

    >>> sorted(shingles("How many ways are there to go?"))[0]
    ('are', 'there', 'to', 'go')
    """
    words = _words(text)
    size = min(WORDS, max(1, len(words) - 3))
    return frozenset(tuple(words[i : i + size]) for i in range(max(1, len(words) - size + 1)))


def _words(text: str) -> tuple[str, ...]:
    """Return the Latin words and numbers of a text. If most letters are of another script, each is a word too."""
    plain = _SILENT.sub(" ", _NOTE.sub(" ", text)).lower()
    latin, others = re.findall(r"[a-z]+|\d+", plain), re.findall(r"[^\W\d_a-z]", plain)
    return tuple(latin if len(others) <= len("".join(latin)) else re.findall(r"[a-z]+|\d+|[^\W\d_]", plain))


def _look(text: str) -> str:
    r"""Normalise a text: case, spaces, final punctuation, and LaTeX spacing and delimiters.

    >>> _look("What is $12+ 7$ ?") == _look(r"what is 12 \, + 7.") != _look("What is 127?")
    True
    """
    return re.sub(r"(?<!\w) | (?!\w)", "", " ".join(_SPACING.sub(" ", text).lower().split())).rstrip(".?:")


def near_duplicates(texts: Sequence[str], others: Sequence[str] | None = None) -> list[Pair]:
    """Return pairs within `texts`, or across `texts` (first) and `others` (second), sorted by position.

    Identical texts (copies) are merged first: each copy is linked to the first one, and only the first one is compared
    with other texts. Across two sets, every text with a near-duplicate in the other set is in a pair. Texts without
    words match only their copies.
    """
    everything = [*texts, *(others or ())]
    border = None if others is None else len(texts)
    alike: dict[str, list[int]] = defaultdict(list)
    for i, text in enumerate(everything):
        alike[_look(text)].append(i)
    copies = {places[0]: places for places in alike.values()}
    sets = {first: shingles(everything[first]) for first in copies}
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for first, found in sets.items():
        for shingle in filter(None, found):
            holders[shingle].append(first)
    shared: Counter[tuple[int, int]] = Counter()
    for places in holders.values():
        if 1 < len(places) <= COMMON:
            shared.update(combinations(places, 2))
    pairs = {pair: 1.0 for places in copies.values() for pair in _links(places, places, border)}
    for (a, b), count in shared.items():
        similarity = count / min(len(sets[a]), len(sets[b]))
        stem = count >= STEM_SHINGLES and similarity >= STEM_CONTAINED
        if stem or (similarity >= CONTAINED and count >= min(MIN_SHARED, len(sets[a]), len(sets[b]))):
            for pair in _links(copies[a], copies[b], border):
                pairs.setdefault(pair, round(similarity, 4))
    return [Pair(a, b - (border or 0), similarity) for (a, b), similarity in sorted(pairs.items())]


def _links(one: Sequence[int], other: Sequence[int], border: int | None) -> Iterable[tuple[int, int]]:
    """Return pairs that link two groups of copies: about as many pairs as there are copies."""
    if border is None:
        return ((one[0], b) for b in other if b > one[0]) if one is other else ((one[0], other[0]),)
    found: set[tuple[int, int]] = set()
    for lefts, rights in ((one, other), (other, one)):
        left, right = [p for p in lefts if p < border], [p for p in rights if p >= border]
        if left and right:
            found |= {(p, right[0]) for p in left} | {(left[0], p) for p in right}
    return found


def clusters(names: Sequence[str], pairs: Iterable[Pair]) -> list[str]:
    """Return the cluster of each name: the smallest name that it is linked to, directly or through others.

    >>> clusters(["c", "a", "b"], [Pair(0, 2, 1.0)])
    ['b', 'a', 'b']
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not (links := [(pair.first, pair.second) for pair in pairs]):
        return list(names)
    graph = coo_array(([True] * len(links), tuple(zip(*links, strict=True))), (len(names), len(names)))
    cluster_N = connected_components(graph, directed=False)[1].tolist()
    smallest: dict[int, str] = {}
    for cluster, name in zip(cluster_N, names, strict=True):
        smallest[cluster] = min(name, smallest.get(cluster, name))
    return [smallest[cluster] for cluster in cluster_N]


# ---- leaks: problems of one set that occur in another set, exactly or nearly

_NAMES = ("problem_id", "source_id", "split", "other_id", "other_source_id", "other_split", "kind")
LEAKS = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in _NAMES]
    + [pa.field("similarity", pa.float64(), nullable=False)]
)


def find_leaks(one: pa.Table, other: pa.Table, one_split: str, other_split: str) -> pa.Table:
    """Return exact and near-duplicates between two sets (columns problem_id, source_id, problem). Schema: LEAKS."""
    left, right = one.to_pylist(), other.to_pylist()
    rows = []
    for pair in near_duplicates([r["problem"] for r in left], [r["problem"] for r in right]):
        a, b = ((r["problem_id"], r["source_id"]) for r in (left[pair.first], right[pair.second]))
        kind = "exact" if a[0] == b[0] else "near"
        rows.append(dict(zip(LEAKS.names, (*a, one_split, *b, other_split, kind, pair.similarity), strict=True)))
    return pa.Table.from_pylist(rows, schema=LEAKS)


def left_out(splits: pa.Table, leaks: pa.Table) -> pa.Table:
    """Mark a lesson's training problems that resemble held-out problems as `near_heldout`: they are neither trained on
    nor evaluated. A lesson is an earlier training. leaks: schema LEAKS; `other_id` is the lesson's problem.

    >>> splits = pa.table({"problem_id": ["a", "b"], "source": ["s", "s"], "split": ["train", "heldout"]})
    >>> leaks = pa.table({"other_id": ["a", "b"]})
    >>> left_out(splits, leaks)["split"].to_pylist()
    ['near_heldout', 'heldout']
    """
    near = set(leaks["other_id"].to_pylist())
    ids, split = splits["problem_id"].to_pylist(), splits["split"].to_pylist()
    named = ["near_heldout" if p in near and s == "train" else s for p, s in zip(ids, split, strict=True)]
    return splits.set_column(splits.schema.get_field_index("split"), "split", pa.array(named, pa.string()))
