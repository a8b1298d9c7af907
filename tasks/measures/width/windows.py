"""Windows: the first so many words of each of a problem's traces, as numbers: counted once for all that is measured.

Axes: N traces, T places of a window, W words of 64 bits, V numbers or words, M places of all traces together; and
orders of n-grams, a list each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

ORDERS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Windows:
    """Windows of one length. there_N: which traces are as long; rows of others are not to be read. word_NT: which of
    the problem's words stands where; begun: by order, see `begun_in`."""

    length: int
    there_N: np.ndarray
    word_NT: np.ndarray
    begun: Sequence[np.ndarray]

    def only(self, at_N: np.ndarray) -> Windows:
        """Of these traces alone."""
        return Windows(self.length, self.there_N[at_N], self.word_NT[at_N], [one_NT[at_N] for one_NT in self.begun])

    @cached_property
    def held_by(self) -> dict[int, int]:
        """Traces → how many different words are in so many of them."""
        has_NV = np.zeros((len(self.word_NT), int(self.word_NT.max(initial=0)) + 1), bool)
        has_NV[np.arange(len(has_NV))[:, None], self.word_NT] = True
        return {n: int(words) for n, words in enumerate(np.bincount(has_NV.sum(axis=0))) if n and words}

    @cached_property
    def shared(self) -> list[np.ndarray]:
        """By order bits_NW: which of what begins in several traces each has."""
        return [shared_bits(number_NT) for number_NT in self.begun]


def windows_of(texts: Sequence[Sequence[str]], lengths: Iterable[int]) -> dict[int, Windows]:
    """By length. texts: one problem's, up to the longest."""
    known: dict[str, int] = {}
    size_N = np.array([len(words) for words in texts])
    word_NT = np.zeros((len(texts), int(size_N.max(initial=0))), np.int64)
    for row_T, words in zip(word_NT, texts, strict=True):
        row_T[: len(words)] = [known.setdefault(word, len(known)) for word in words]
    begun = list(zip(ORDERS, begun_in(word_NT), strict=True))
    return {
        length: Windows(
            length,
            size_N >= length,
            word_NT[:, :length],
            [number_NT[:, : max(0, length - order + 1)] for order, number_NT in begun],
        )
        for length in lengths
    }


def begun_in(word_NT: np.ndarray) -> list[np.ndarray]:
    """By order number_NT: for each place one number that stands for the n-gram that begins there and for how often its
    text had it before. So what two texts share, as often as both have it, is the numbers that both have.

    >>> begun_in(np.array([[7, 8, 7], [8, 7, 7]]))[0].tolist()
    [[0, 2, 1], [2, 0, 1]]
    """
    words, gram_NT, found = int(word_NT.max(initial=0)) + 1, word_NT, list[np.ndarray]()
    for order in ORDERS:
        if order > 1:
            gram_NT = gram_NT[:, :-1] * words + word_NT[:, order - 1 :]
        n, t = gram_NT.shape
        if not n * t:
            found.append(np.zeros((n, t), np.int64))
            continue
        place_M = np.arange(n * t)
        key_M = np.sort(gram_NT.ravel() * (n * t) + place_M)  # by n-gram, then by text, then by place
        first_M, first_of_text_M = (np.diff(key_M // size, prepend=-1) != 0 for size in (n * t, t))
        before_M = place_M - np.maximum.accumulate(np.where(first_of_text_M, place_M, 0))
        code_M = np.cumsum(first_M) - 1
        most_V = np.maximum.reduceat(before_M, np.flatnonzero(first_M)) + 1
        number_NT, gram_NT = np.empty((n, t), np.int64), np.empty((n, t), np.int64)
        number_NT.ravel()[key_M % (n * t)] = (np.cumsum(most_V) - most_V)[code_M] + before_M
        gram_NT.ravel()[key_M % (n * t)] = code_M
        found.append(number_NT)
    return found


def shared_bits(number_NT: np.ndarray) -> np.ndarray:
    """bits_NW: which of the numbers that several rows have each row has. A row has no number twice.

    >>> shared_bits(np.array([[0, 1, 2], [3, 2, 1], [4, 5, 1]]))[:, 0].tolist()
    [192, 192, 128]
    """
    shared_V = np.bincount(number_NT.ravel()) > 1
    column_V = np.cumsum(shared_V) - 1
    has_NV = np.zeros((len(number_NT), 64 * max(1, -(-int(shared_V.sum()) // 64))), bool)
    row_M, place_M = np.nonzero(shared_V[number_NT])
    has_NV[row_M, column_V[number_NT[row_M, place_M]]] = True
    return np.packbits(has_NV, axis=1).view(np.uint64)
