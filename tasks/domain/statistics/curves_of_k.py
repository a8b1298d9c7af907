"""Curves over k: estimates with intervals that hold point by point or all together, for one policy.

Axes: S seeds (adapters of one recipe), P problems, K values of k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from storage.rules import pass_all_k, pass_at_k, resample_classes
from tasks.domain.statistics.means import (
    ONE_PROBLEM,
    SILENT,
    Means,
    Spread,
    bisected,
    by_seed,
    combined,
    folded,
    same_adapters,
    together,
    uneven,
)
from tasks.domain.statistics.shares import SCARCE, proportions

METRICS = {"pass@k": pass_at_k, "pass^k": pass_all_k}
INCOMPLETE = "no problem was evaluated under every seed"


@dataclass(frozen=True, slots=True)
class KCurve:
    """One policy on one slice, on the problems that each of its seeds was asked. values: metric → (S, P, K), masked
    where n < k; cluster_P: which problems are near-duplicates; cost_P: tokens a rollout of each problem; trained:
    whether its seeds are trainings, adapter_S; rollouts: fewest of a group."""

    problem_P: np.ndarray
    cluster_P: np.ndarray
    values: dict[str, np.ma.MaskedArray]
    rollouts: int
    policies: int
    cost_P: np.ndarray | None
    tokens_per_rollout: float | None
    trained: bool
    size_SP: np.ndarray
    correct_SP: np.ndarray
    adapter_S: np.ndarray

    def by_cluster(self, metric: str = "pass@k") -> np.ndarray:
        """(S, C, K) values in which near-duplicate problems are one; columns with n < k are not to be read."""
        return folded(self.values[metric].data, self.cluster_P)

    def rows(self, ks: Sequence[int], draws: int, seed: int) -> list[dict[str, Any]]:
        """Columns: metric, k, estimate, intervals, n, rollouts, policies, tokens, holds_for, reason."""
        known, rows = self.known(ks), []
        why = f"a problem has {self.rollouts} rollouts, fewer than k = {{}}" if len(self.problem_P) else INCOMPLETE
        for metric in METRICS:
            values_SCK = self.by_cluster(metric)
            about = {"metric": metric, "n": len(self.problem_P), "clusters": values_SCK.shape[1]}
            about |= {"rollouts": self.rollouts, "policies": self.policies}
            found: dict[int, dict[str, Any]] = {}
            if known:
                beyond = together(values_SCK[:, :, known].mean(axis=0), draws, seed)
                alone, wide = (levels(values_SCK[:, :, known], self.trained, factor) for factor in (1.0, beyond))
                for i, row, band in zip(known, alone, wide, strict=True):
                    found[i] = row | {"low_simultaneous": band["low"], "high_simultaneous": band["high"]}
            for i, k in enumerate(ks):
                tokens = None if self.tokens_per_rollout is None else k * self.tokens_per_rollout
                rows.append(about | {"k": k, "tokens": tokens} | found.get(i, {"reason": why.format(k)}))
        return rows

    def known(self, ks: Sequence[int]) -> list[int]:
        """Places of the k for which every problem has rollouts enough."""
        masked_K = np.ma.getmaskarray(self.values["pass@k"]).any(axis=(0, 1))
        return [i for i in range(len(ks)) if len(self.problem_P) and not masked_K[i]]


def levels(
    values_SPV: np.ndarray, trained: bool, beyond: float = 1.0, *, gradual: bool = False
) -> list[dict[str, Any]]:
    """One row a column: the mean share with its interval (`proportions`), what that holds for, and why where there is
    none."""
    mean = combined([(1.0, values_SPV)], [trained])
    low_V, high_V = proportions(values_SPV, trained, beyond, gradual=gradual)
    why = {"low": None, "high": None, "reason": ONE_PROBLEM if mean.n < 2 else SILENT}
    return [
        {"estimate": float(at), "holds_for": mean.holds_for, "clusters": values_SPV.shape[1]}
        | ({"low": float(low), "high": float(high)} if np.isfinite(low) else why)
        for at, low, high in zip(mean.estimate_V, low_V, high_V, strict=True)
    ]


def k_curve(
    problem_N: np.ndarray,
    cluster_N: np.ndarray,
    adapter_N: np.ndarray,
    policy_N: np.ndarray,
    size_N: np.ndarray,
    correct_N: np.ndarray,
    tokens_N: np.ndarray,
    ks: Sequence[int],
) -> KCurve:
    """From groups, one row per (problem, policy). Groups of one adapter and problem are averaged; adapter 0 is none,
    and a policy without one has no seeds. Errors: ValueError if ks holds a k below 1."""
    per_group = {name: estimate(size_N, correct_N, ks).filled(0.0) for name, estimate in METRICS.items()}
    rollouts, tokens = int(size_N.sum()), float(tokens_N.sum())  # imported counts have no tokens: not a number
    known = np.isfinite(tokens) and rollouts > 0
    cost_N = tokens_N / size_N if known else np.zeros(len(size_N))
    found = by_seed(problem_N, adapter_N, np.column_stack([*per_group.values(), cluster_N, size_N, correct_N, cost_N]))
    mask_K = size_N.min() < np.asarray(ks) if len(size_N) else np.ones(len(ks), bool)
    values = {}
    for i, name in enumerate(METRICS):
        one = found.values_SPV[:, :, i * len(ks) : (i + 1) * len(ks)]
        values[name] = np.ma.MaskedArray(one, mask=np.broadcast_to(mask_K, one.shape))
    return KCurve(
        found.problem_P,
        found.values_SPV[:1, :, -4].reshape(-1),
        values,
        int(size_N.min()) if len(size_N) else 0,
        len(np.unique(policy_N)),
        found.values_SPV[:, :, -1].mean(axis=0) if known else None,
        tokens / rollouts if known else None,
        found.trained,
        found.values_SPV[:, :, -3],
        found.values_SPV[:, :, -2],
        found.adapter_S,
    )


def same_seeds(curves: Sequence[KCurve]) -> bool:
    """Whether the curves with several seeds are of the same adapters."""
    return same_adapters([curve.adapter_S for curve in curves])


def on_common(curves: Sequence[KCurve]) -> tuple[int, list[np.ndarray]]:
    """(problems, values_SCK of pass@k of each curve) on the problems that all of them have, in one order,
    near-duplicates folded into one."""
    problem_P = curves[0].problem_P
    for curve in curves[1:]:
        problem_P = np.intersect1d(problem_P, curve.problem_P)
    places = [np.searchsorted(curve.problem_P, problem_P) for curve in curves]
    cluster_P = curves[0].cluster_P[places[0]]
    return len(problem_P), [
        folded(c.values["pass@k"].data[:, at], cluster_P) for c, at in zip(curves, places, strict=True)
    ]


def doublings(curve: KCurve, ks: Sequence[int]) -> list[dict[str, Any]]:
    """pass@k with its interval, and by how much each k exceeds the k before it. No k may exceed a group's size."""
    if not len(curve.problem_P):
        return [{"k": k, "reason": INCOMPLETE} for k in ks]
    values_SCK = curve.by_cluster()
    rows = [{"k": k} | row for k, row in zip(ks, levels(values_SCK, curve.trained), strict=True)]
    if len(ks) < 2:
        return rows
    more = combined([(1.0, np.diff(values_SCK, axis=2))], [curve.trained], reach=1.0)
    low_V, high_V = more.interval()
    for row, at, low, high in zip(rows[1:], more.estimate_V, low_V, high_V, strict=True):
        row["doubling"] = float(at)
        if np.isfinite(low):
            row |= {"doubling_low": max(0.0, float(low)), "doubling_high": float(high)}
    return rows


# Does one policy's pass@k catch up because it searches more widely, or only because every gap closes as k grows?
#
# A policy that is better by a constant logit on every problem, and no narrower, closes its gap too: pass@k cannot pass
# 1. So the closure that such a policy would have is taken from the closure that is seen; the rest is width.
#
# Axes: C classes of equal (n, c), J points of a grid of logits, B bootstrap draws, K values of k.

GRID_J = np.linspace(-10.0, 10.0, 61)
STEPS = 300  # of expectation-maximisation: pass@k up to the group size no longer moves in the fourth digit


DRAWS = 200  # for a standard error only


@dataclass(frozen=True, slots=True)
class Counted:
    """One policy on the common problems: rollouts, correct ones, pass@k at the smallest and at the largest k."""

    n_SP: np.ndarray
    c_SP: np.ndarray
    ends_SP2: np.ndarray
    trained: bool

    def of_seed(self, s: int) -> Counted:
        return Counted(self.n_SP[s : s + 1], self.c_SP[s : s + 1], self.ends_SP2[s : s + 1], self.trained)


def beyond_shift(
    first: Counted, second: Counted, ks: tuple[int, int], cluster_P: np.ndarray, seed: int, *, paired: bool = False
) -> tuple[float, Means]:
    """(null, excess): the closure of the gap between the smallest and the largest k that a constant shift of logits
    would bring, and the closure beyond it, 0 where the two differ by such a shift alone.

    The shift is fitted from either side and the two are averaged. The variance is that of a bootstrap over problems,
    near-duplicates drawn together, and of leaving one seed at a time to stand for its policy; paired: whether the two
    are the same adapters, of which one then stands for both.
    """
    found, at_P = np.unique(cluster_P, return_inverse=True)
    size = 1 if uneven(at_P) else len(found)
    drawn_BP = resample_classes(np.ones(len(found), np.int64), DRAWS, seed)[:, at_P]
    drawn_BP = np.concatenate([np.ones((1, len(at_P))), drawn_BP])
    drawn_BP /= drawn_BP.sum(axis=1, keepdims=True)
    null_B, excess_B = _null_and_excess(first, second, ks, drawn_BP)
    problems = float(excess_B[1:].var(ddof=1))
    added, over = 0.0, 0.0
    for pairs in _by_seed(first, second, paired):
        seeds, alone = len(pairs), [_null_and_excess(*pair, ks, drawn_BP[:1])[1][0] for pair in pairs]
        part = float(np.var(alone, ddof=1)) / seeds
        added, over = added + part, over + part**2 / (seeds - 1)
    known = np.array([size > 1 and problems > 0])
    trained = [seeds for seeds, was in ((len(p.n_SP), p.trained) for p in (first, second)) if was]
    one = [np.array([v]) for v in (problems, max(size - 1.0, 1.0), added, added**2 / over if over > 0 else 1.0)]
    return float(null_B[0]), Means(
        np.array([excess_B[0]]), Spread(*one), known, known, size, min(trained, default=0), 1.0
    )


def _by_seed(first: Counted, second: Counted, paired: bool) -> list[list[tuple[Counted, Counted]]]:
    """Of whatever has seeds, the two policies with one seed at a time in the place of all."""
    of_first, of_second = (
        [one.of_seed(s) for s in range(len(one.n_SP))] if one.trained and len(one.n_SP) > 1 else []
        for one in (first, second)
    )
    if paired and (of_first or of_second):
        return [[(first.of_seed(s), second.of_seed(s)) for s in range(len(first.n_SP))]]
    alone = [[(one, second) for one in of_first], [(first, one) for one in of_second]]
    return [pairs for pairs in alone if pairs]


def _null_and_excess(
    first: Counted, second: Counted, ks: tuple[int, int], weights_BP: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(null_B, excess_B), signed so that a closing gap is positive whichever policy is ahead."""
    a_B2, b_B2 = (weights_BP @ one.ends_SP2.mean(axis=0) for one in (first, second))
    gap_B2 = a_B2 - b_B2
    sign = 1.0 if gap_B2[0, 0] >= 0 else -1.0
    closures = []
    for one in (first, second):
        weights = np.tile(weights_BP, (1, len(one.n_SP))) / len(one.n_SP)
        q_BJ = spread_of_difficulty(one.n_SP.ravel(), one.c_SP.ravel(), weights)
        of_a, of_b = (np.array(shifted(q_BJ, mean_B, ks)) for mean_B in (a_B2[:, 0], b_B2[:, 0]))
        closures.append((of_a - of_b)[0] - (of_a - of_b)[1])
    null_B = sign * np.mean(closures, axis=0)
    return null_B, sign * (gap_B2[:, 0] - gap_B2[:, 1]) - null_B


def spread_of_difficulty(n_P: np.ndarray, c_P: np.ndarray, weights_BP: np.ndarray) -> np.ndarray:
    """(B, J) weights of the grid's logits: the nonparametric maximum likelihood of how problems' chances of a correct
    rollout are spread, under each draw's weights of the problems."""
    pairs, class_P = np.unique(np.stack([n_P, c_P]), axis=1, return_inverse=True)
    weights_BC = weights_BP @ np.eye(pairs.shape[1])[class_P.ravel()]
    p_J = 1 / (1 + np.exp(-GRID_J))
    like_CJ = np.exp(pairs[1][:, None] * np.log(p_J) + (pairs[0] - pairs[1])[:, None] * np.log1p(-p_J))
    like_CJ /= like_CJ.max(axis=1, keepdims=True)
    q_BJ = np.full((len(weights_BC), len(GRID_J)), 1 / len(GRID_J))
    for _ in range(STEPS):
        q_BJ = q_BJ * ((weights_BC / np.maximum(q_BJ @ like_CJ.T, 1e-300)) @ like_CJ)
        q_BJ /= q_BJ.sum(axis=1, keepdims=True)
    return q_BJ


def shifted(q_BJ: np.ndarray, first_B: np.ndarray, ks: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """pass@k_B at both k of this spread of difficulty once every logit moved by the constant at which its pass@k at the
    first is first_B."""

    def passing(shift_B: np.ndarray, k: int) -> np.ndarray:
        fail_BJ = 1 / (1 + np.exp(GRID_J + shift_B[:, None]))
        return (q_BJ * (1 - fail_BJ**k)).sum(axis=1)

    ends_B = np.full(len(q_BJ), 25.0)
    at_B = bisected(-ends_B, ends_B, lambda shift_B: passing(shift_B, ks[0]) >= first_B)
    return passing(at_B, ks[0]), passing(at_B, ks[1])


# Two curves over k set against each other on their common problems: gaps, their closure, and gaps at equal cost.

Row = dict[str, Any]


def contrast_curves(a: KCurve, b: KCurve, ks: Sequence[int], draws: int, seed: int) -> list[Row]:
    """Rows of gap, closure and monotone between two pass@k curves on their common problems."""
    n, both = on_common([a, b])
    if n == 0:
        return [{"metric": "gap", "n": 0, "reason": "no problem in common"}]
    known = [i for i in a.known(ks) if i in b.known(ks)]
    rows: list[Row] = [
        {"metric": "gap", "k": k, "n": n, "reason": f"a problem has fewer than k = {k} rollouts in one of the two"}
        for i, k in enumerate(ks)
        if i not in known
    ]
    if not known:
        return rows
    first, second = (values[:, :, known] for values in both)
    trained, paired = [a.trained, b.trained], same_seeds([a, b])
    gaps = combined([(1.0, first), (-1.0, second)], trained, reach=1.0, shares=True, paired=paired)
    told = told_of(gaps, n, alike="the two are alike on every problem")
    rows += [{"metric": "gap", "k": ks[i]} | row for i, row in zip(known, told, strict=True)]
    if len(known) < 2:
        return [*rows, {"metric": "closure", "n": n, "reason": "one k has nothing to close"}]
    gap_PK = first.mean(axis=0) - second.mean(axis=0)
    sign = 1.0 if gap_PK[:, 0].mean() >= 0 else -1.0
    ends = [sign * (v[:, :, :1] - v[:, :, -1:]) for v in (first, second)]
    closure = combined([(1.0, ends[0]), (-1.0, ends[1])], trained, reach=1.0, paired=paired)
    alike = "every problem closes by the same amount"
    return [
        *sorted(rows, key=lambda r: r["k"]),
        {"metric": "closure", "k": ks[known[-1]]} | told_of(closure, n, alike=alike)[0],
        *_on_scales(sign, [v[:, :, [0, -1]] for v in (first, second)], trained, ks[known[-1]], n, paired),
        _monotone(sign * gap_PK, ks[known[-1]], draws, seed) | {"n": n},
    ]


def told_of(means: Means, n: int, alike: str) -> list[Row]:
    """One row a column: estimate, interval, p, the difference that could have been seen, what it holds for. n:
    problems, of which near-duplicates are one cluster."""
    low_V, high_V = means.interval()
    p_V, seen_V = means.p_value(), means.detectable()
    rows = []
    for i, estimate in enumerate(means.estimate_V):
        row: Row = {"estimate": float(estimate), "n": n, "clusters": means.n, "seeds": means.seeds or None}
        row["holds_for"] = means.holds_for
        if means.known_V[i]:
            row |= {"low": float(low_V[i]), "high": float(high_V[i])}
        if np.isfinite(seen_V[i]):
            row["detectable"] = float(seen_V[i])
        if np.isfinite(p_V[i]):
            row["p_value"] = float(p_V[i])
        else:
            row["reason"] = means.unknown(i, alike)
        rows.append(row)
    return rows


def beyond_a_shift(a: KCurve, b: KCurve, ks: Sequence[int], seed: int) -> list[Row]:
    """`closure_of_shift`: the closure that a constant shift of logits between the two would bring;
    `closure_beyond_shift`: the closure beyond it, the only one that says anything of width."""
    problem_P = np.intersect1d(a.problem_P, b.problem_P)
    n, known = len(problem_P), [i for i in a.known(ks) if i in b.known(ks)]
    if n < 2 or len(known) < 2:
        return []
    ends = (known[0], known[-1])
    places = [np.searchsorted(curve.problem_P, problem_P) for curve in (a, b)]
    counted = [
        Counted(c.size_SP[:, at], c.correct_SP[:, at], c.values["pass@k"].data[:, at][:, :, ends], c.trained)
        for c, at in zip((a, b), places, strict=True)
    ]
    null, excess = beyond_shift(
        counted[0], counted[1], (ks[ends[0]], ks[ends[1]]), a.cluster_P[places[0]], seed, paired=same_seeds([a, b])
    )
    return [
        {"metric": "closure_of_shift", "k": ks[ends[1]], "estimate": null, "n": n},
        {"metric": "closure_beyond_shift", "k": ks[ends[1]]} | told_of(excess, n, alike="the two are alike")[0],
    ]


SCALES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
    "closure_of_failures": (lambda m: -np.log(1 - m), lambda m: 1 / (1 - m)),
    "closure_of_logits": (lambda m: np.log(m) - np.log(1 - m), lambda m: 1 / (m * (1 - m))),
}


def _on_scales(
    sign: float, ends_SP2: Sequence[np.ndarray], trained: Sequence[bool], k: int, n: int, paired: bool
) -> list[Row]:
    """The closure of the logarithm of the failure ratio, (1 − pass@k) of one over that of the other, and of the
    difference in logits of pass@k, linearised."""
    means = [v.mean(axis=(0, 1)) for v in ends_SP2]
    rows: list[Row] = []
    for metric, (scale, slope) in SCALES.items():
        taken = [1 - m if metric == "closure_of_failures" else np.minimum(m, 1 - m) for m in means]
        if min(share.min() for share in taken) * n < SCARCE:
            why = f"fewer than {SCARCE:g} problems' worth of what a logarithm is taken of"
            rows.append({"metric": metric, "k": k, "n": n, "reason": why})
            continue
        parts = [
            sign * (v * slope(m) @ np.array([1.0, -1.0]))[:, :, None] for v, m in zip(ends_SP2, means, strict=True)
        ]
        found = combined([(1.0, parts[0]), (-1.0, parts[1])], trained, paired=paired)
        at = sign * (scale(means[0]) - scale(means[1])) @ np.array([1.0, -1.0])
        rows.append({"metric": metric, "k": k} | told_of(replace(found, estimate_V=np.array([at])), n, "alike")[0])
    return rows


def _monotone(gap_PK: np.ndarray, k_max: int, draws: int, seed: int) -> Row:
    """Share of bootstrap draws in which every step of k narrows the gap, whose sign at the smallest k is positive: a
    gap that turns round goes on narrowing. Equal problems are one class of the multinomial."""
    classes_CK, counts_C = np.unique(gap_PK, axis=0, return_counts=True)
    drawn_BK = resample_classes(counts_C, draws, seed) @ classes_CK
    observed = bool((np.diff(gap_PK.mean(axis=0)) <= 1e-12).all())
    return {
        "metric": "monotone",
        "k": k_max,
        "estimate": float((np.diff(drawn_BK, axis=1) <= 1e-12).all(axis=1).mean()),
        "n": len(gap_PK),
        "reason": "narrows at every k" if observed else "does not narrow at every k",
    }


def contrast_at_cost(a: KCurve, b: KCurve, ks: Sequence[int]) -> list[Row]:
    """`equal_tokens`: gaps at what k rollouts of the dearer policy cost, problem by problem. a, b: curves at every k
    from 1 to their rollouts.

    The cheaper one's k is a fraction: its pass@k lies on the line between the two whole k around it, which is what
    drawing one of the two at random, at this cost on average, would give. Where k of the dearer cost more than all of
    the cheaper one's rollouts, these are what both may spend on the problem, and the dearer one's k is a fraction. No
    row where lengths are unknown, no estimate where that is so of most problems.
    """
    _, in_a, in_b = np.intersect1d(a.problem_P, b.problem_P, return_indices=True)
    if not len(in_a) or a.cost_P is None or b.cost_P is None or not a.cost_P.sum() or not b.cost_P.sum():
        return []
    dear, cheap = (a, b) if (a.tokens_per_rollout or 0) >= (b.tokens_per_rollout or 0) else (b, a)
    at, other_at = (in_a, in_b) if dear is a else (in_b, in_a)
    cost_P, other_cost_P = np.asarray(dear.cost_P)[at], np.asarray(cheap.cost_P)[other_at]
    if not other_cost_P.all():
        return []
    sign, rows, cluster_P = 1.0 if dear is a else -1.0, [], a.cluster_P[in_a]
    trained, paired = [dear.trained, cheap.trained], same_seeds([dear, cheap])
    for k in ks:
        if k > dear.rollouts:
            continue
        k_P = np.minimum(cheap.rollouts * other_cost_P / cost_P, k)
        less, of_all = int((k_P < k).sum()), f"of {len(in_a)} problems"
        if 2 * less > len(in_a):
            why = f"{k} of the dearer cost more than all {cheap.rollouts} of the other on {less} {of_all}"
            rows.append({"metric": "equal_tokens", "k": k, "n": len(in_a), "reason": why})
            continue
        other_k_P = k_P * cost_P / other_cost_P
        first = at_fraction(dear.values["pass@k"].data[:, at], k_P)[:, :, None]
        second = at_fraction(cheap.values["pass@k"].data[:, other_at], other_k_P)[:, :, None]
        both = [(sign, folded(first, cluster_P)), (-sign, folded(second, cluster_P))]
        found = combined(both, trained, reach=1.0, shares=True, paired=paired)
        row = told_of(found, len(in_a), alike="the two are alike on every problem")[0]
        own, other = (float(v.mean()) for v in ((k_P, other_k_P) if dear is a else (other_k_P, k_P)))
        whole = "" if own == round(own) else f"at k = {own:.3g}, "
        reasons = [f"{(k_P * cost_P).mean():,.0f} tokens; {whole}other at k = {other:.3g}", row.get("reason")]
        if less:
            fewer = f"on {less} {of_all} all {cheap.rollouts} of the cheaper one's cost less, and as many tokens are"
            reasons.insert(1, f"{fewer} compared")
        about = {"metric": "equal_tokens", "k": k if dear is a else round(own)}
        rows.append(about | row | {"reason": "; ".join(filter(None, reasons))})
    return rows


def at_fraction(values_SPK: np.ndarray, k_P: np.ndarray) -> np.ndarray:
    """(S, P) pass@k at a fraction of k for each problem, on the line between whole k; pass@0 is 0.

    >>> at_fraction(np.array([[[0.5, 0.75]]]), np.array([1.5])).tolist()
    [[0.625]]
    """
    from_zero = np.pad(values_SPK, ((0, 0), (0, 0), (1, 0)))
    last, at = from_zero.shape[2] - 1, np.arange(len(k_P))
    low_P = np.clip(np.floor(k_P).astype(int), 0, last)
    below, above = from_zero[:, at, low_P], from_zero[:, at, np.minimum(low_P + 1, last)]
    return below + (k_P - low_P) * (above - below)
