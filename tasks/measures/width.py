"""Measures of width: how many different things a problem's rollouts are. Each is one function of a group and k, with
its formula and source; MEASURES lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, repeat
from math import comb, fsum, log
from typing import Literal

import numpy as np

from tasks.domain.partitions.classes import in_order
from tasks.domain.statistics.estimators import subsets, vendi_of_k

# Windows: the first so many words of each of a problem's traces, as numbers: counted once for all that is measured.
#
# Axes: N traces, T places of a window, W words of 64 bits, V numbers or words, M places of all traces together; and
# orders of n-grams, a list each.

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


# What a measure of width sees: one problem's rollouts under one policy. Axis suffixes: N rollouts, S subsets of k.
#
# Every measure is about k of the n rollouts, averaged over all subsets of k: what k fresh rollouts are expected to
# show, whatever n was. So policies with other n compare, and nothing is larger because more was sampled.


@dataclass(frozen=True, slots=True)
class Group:
    """class_N: of the partition that is looked at, −1 without one. logprob_N, num_tokens_N: of whole completions, NaN
    where unknown. vectors_ND: of traces, NaN without one. windows: of a length that is looked at. vocabulary: different
    words in such windows of all policies that are compared."""

    class_N: np.ndarray
    correct_N: np.ndarray
    logprob_N: np.ndarray
    num_tokens_N: np.ndarray
    vectors_ND: np.ndarray
    windows: Windows | None = None
    vocabulary: int = 0

    def __len__(self) -> int:
        return len(self.class_N)

    def only(self, kept_N: np.ndarray) -> Group:
        """These rollouts alone."""
        at = np.flatnonzero(kept_N)
        return replace(
            self,
            class_N=self.class_N[at],
            correct_N=self.correct_N[at],
            logprob_N=self.logprob_N[at],
            num_tokens_N=self.num_tokens_N[at],
            vectors_ND=self.vectors_ND[at],
            windows=None if self.windows is None else self.windows.only(at),
        )

    @property
    def words(self) -> Windows:
        """Errors: ValueError where none are looked at."""
        if self.windows is None:
            raise ValueError("a group without windows has no words")
        return self.windows

    @property
    def classed(self) -> Group:
        return self.only(self.class_N >= 0)

    @property
    def counts(self) -> np.ndarray:
        """Rollouts of each class, largest first."""
        return np.sort(np.bincount(in_order(self.class_N[self.class_N >= 0])))[::-1] if len(self) else np.zeros(0, int)


@lru_cache(maxsize=4096)
def none_of(n: int, size: int, k: int) -> float:
    """Chance that k of n rollouts hold none of a class of this size.

    >>> none_of(4, 2, 2)
    0.16666666666666666
    """
    return comb(n - size, k) / comb(n, k)


# Distinct classes among k rollouts.
#
#     distinct_k = Σ_c [1 − C(n − n_c, k) / C(n, k)]
#
# n_c: rollouts of class c. The mean of NoveltyBench's distinct_k (Zhang et al. 2025, arXiv 2504.05228), the number of
# classes among k generations, over all subsets of k; ecology's rarefaction (Hurlbert 1971). Over answers it is D_k,
# over strategies the strategy count. A rollout of no class is drawn and adds nothing. From 0 (1 where all have a
# class) to k.


def distinct(group: Group, k: int) -> float:
    return sum(1.0 - none_of(len(group), int(size), k) for size in group.counts)


# Utility of k rollouts to a reader who sees one after another, and with patience p goes on to the next.
#
#     utility_k = (1 − p)/(1 − p^k) · Σ_{i=1..k} p^(i−1) · 1[class i is new] · u_i,   p = 0.8
#
# u_i: 1 for a correct rollout, where NoveltyBench (Zhang et al. 2025, arXiv 2504.05228) has a reward model's score.
# What is here is its mean over all orders of the n rollouts: that a rollout of a class of n_c stands at place i and
# none of its class before it has the chance C(n − n_c, i − 1) / C(n − 1, i − 1) / n. A rollout of no class earns
# nothing. 0 to 1.

PATIENCE = 0.8


def utility(group: Group, k: int) -> float:
    n, weights = len(group), PATIENCE ** np.arange(k)
    classes, at_N, size_C = np.unique(group.class_N, return_inverse=True, return_counts=True)
    right_C = np.bincount(at_N, weights=group.correct_N & (group.class_N >= 0), minlength=len(classes))
    earned = 0.0
    for size, right in zip(size_C, right_C, strict=True):
        if right:
            first = [comb(n - int(size), i) / comb(n - 1, i) / n for i in range(k)]
            earned += right * float(weights @ first)
    return earned / float(weights.sum())


# Semantic entropy: over classes of k rollouts, in nats (Farquhar et al. 2024, Nature 630).
#
#     −Σ_c p_c log p_c
#
# by counts, the discrete one: p_c = share of the k rollouts in class c. By likelihood: p_c ∝ Σ_{i in c} exp(l_i),
# where l_i is the mean log-probability a token, as the authors' code has it, or the whole sequence's, as their formula
# has it. The latter is all but one rollout's where traces are long. Only rollouts of a class are looked at. From 0 to
# log k; the plug-in of k rollouts, so it grows with k, and policies compare at one k.

NO_LIKELIHOOD = "a rollout has no log-probability"


def entropy_by_counts(group: Group, k: int) -> float:
    n = len(group)
    return sum(_expected(n, int(size), k) for size in group.counts)


@lru_cache(maxsize=4096)
def _expected(n: int, size: int, k: int) -> float:
    """Of −p log p, where p is the share of a class of this size in k of n rollouts."""
    ways = ((j, comb(size, j) * comb(n - size, k - j)) for j in range(1, min(size, k) + 1))
    return sum(-(j / k) * log(j / k) * w for j, w in ways) / comb(n, k)


def entropy_by_likelihood(group: Group, k: int) -> float | str:
    """Length-normalised."""
    return _weighted(group, group.logprob_N / np.maximum(group.num_tokens_N, 1), k)


def entropy_by_sequence_likelihood(group: Group, k: int) -> float | str:
    return _weighted(group, group.logprob_N, k)


def _weighted(group: Group, log_weight_N: np.ndarray, k: int) -> float | str:
    if not np.isfinite(log_weight_N).all():
        return NO_LIKELIHOOD
    chosen_SK = subsets(len(group), k)
    log_SK = log_weight_N[chosen_SK]
    weight_SK = np.exp(log_SK - log_SK.max(axis=1, keepdims=True))
    classes, at_N = np.unique(group.class_N, return_inverse=True)
    mass_SC = np.zeros((len(chosen_SK), len(classes)))
    np.add.at(mass_SC, (np.arange(len(chosen_SK))[:, None], at_N[chosen_SK]), weight_SK)
    p_SC = mass_SC / mass_SC.sum(axis=1, keepdims=True)
    return float(-(p_SC * np.log(np.where(p_SC > 0, p_SC, 1.0))).sum(axis=1).mean())


# Vendi score of k traces: exp of the entropy of the eigenvalues of their cosine similarities over k.
#
# The effective number of distinct traces, from 1 to k (Friedman and Dieng 2022, arXiv 2210.02410), the mean over
# subsets of k. Of a kernel, not of a partition; it has whatever length does to the encoder.


def vendi(group: Group, k: int) -> float | None:
    return vendi_of_k(group.vectors_ND, k)


# Self-BLEU of k windows: each as the hypothesis, the other k − 1 its references (Zhu et al. 2018, arXiv 1802.01886).
#
# BLEU of order 4 with uniform weights (Papineni et al. 2002): the geometric mean of clipped precisions of 1- to
# 4-grams. Windows have one length, so there is no brevity penalty. Where an order has no match, 0.1 match stands for
# it, as in the authors' code (NLTK's smoothing 1), order 1 too: of 16 words 0.007 is nothing shared, and 1 is all
# alike: narrow is high. Mean over subsets of k.

UNSEEN = 0.1
#: Words of 64 bits that are looked at at once: 200 subsets of many long texts are a hundred megabytes.
HELD = 1 << 17


def self_bleu(group: Group, k: int) -> float:
    chosen_SK = subsets(len(group), k)
    log_SK = np.zeros(chosen_SK.shape)
    for order, bits_NW in zip(ORDERS, group.words.shared, strict=True):
        match_SK = matches(bits_NW, chosen_SK)
        total = group.words.length - order + 1
        log_SK += np.log(np.where(match_SK > 0, match_SK, UNSEEN) / total) / len(ORDERS)
    return float(np.exp(log_SK).mean())


def matches(bits_NW: np.ndarray, chosen_SK: np.ndarray) -> np.ndarray:
    """(S, K) n-grams of each text that another of its subset has, as often as it does at most. bits_NW: of those that
    more than one text has, each as often as a text has it, for others match nothing.

    >>> matches(np.array([[0b111], [0b001], [0b010]], np.uint64), np.array([[0, 1], [0, 1], [1, 2]])).tolist()
    [[1, 1], [1, 1], [0, 0]]
    """
    each = max(1, HELD // (chosen_SK.shape[1] * bits_NW.shape[1]))
    parts = (_matches(bits_NW[some_SK]) for some_SK in np.split(chosen_SK, range(each, len(chosen_SK), each)))
    return np.concatenate(list(parts))


def _matches(bits_SKW: np.ndarray) -> np.ndarray:
    before_SKW = np.bitwise_or.accumulate(bits_SKW, axis=1)
    after_SKW = np.bitwise_or.accumulate(bits_SKW[:, ::-1], axis=1)[:, ::-1]
    others_SKW = np.zeros_like(bits_SKW)
    others_SKW[:, 1:] = before_SKW[:, :-1]
    others_SKW[:, :-1] |= after_SKW[:, 1:]
    return np.bitwise_count(bits_SKW & others_SKW).sum(axis=2, dtype=np.int64)


# Expectation-adjusted distinct (EAD) of k windows: different words over those that chance would show.
#
#     EAD = D / (V · [1 − ((V − 1)/V)^C])
#
# D: different words of the k windows; C: words in them; V: the vocabulary, here the different words in the windows of
# all policies that are compared (Liu et al. 2022, arXiv 2202.13587, of single words). D is the mean over subsets of k.
# Windows have one length, so C is the same everywhere and V only scales. Above 1 words repeat less than by chance.


def expectation_adjusted_distinct(group: Group, k: int) -> float:
    seen = (repeat(1.0 - none_of(len(group), times, k), words) for times, words in group.words.held_by.items())
    return fsum(chain.from_iterable(seen)) / _by_chance(group, k)


def most_of_ead(group: Group, k: int) -> float:
    """Every word another, as far as the vocabulary goes."""
    return min(group.vocabulary, k * group.words.length) / _by_chance(group, k)


def _by_chance(group: Group, k: int) -> float:
    return group.vocabulary * (1.0 - (1.0 - 1.0 / group.vocabulary) ** (k * group.words.length))


# Every measure of width, once: what it is of, what it needs and between what it lies.


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
    Measure("semantic_entropy", entropy_by_counts, "partition", lambda group, k: log(k)),
    Measure("semantic_entropy_likelihood", entropy_by_likelihood, "partition", lambda group, k: log(k)),
    Measure("semantic_entropy_sequence", entropy_by_sequence_likelihood, "partition", lambda group, k: log(k)),
    Measure("vendi", vendi, "vectors", lambda group, k: float(k), least=1.0),
    Measure("self_bleu", self_bleu, "words", lambda group, k: 1.0),
    Measure("ead", expectation_adjusted_distinct, "words", most_of_ead),
)
