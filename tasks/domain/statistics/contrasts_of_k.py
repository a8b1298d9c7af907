"""Two curves over k set against each other on their common problems: gaps, their closure, and gaps at equal cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tasks.domain.statistics.curves_of_k import KCurve, bootstrap_columns, on_common, same_seeds
from tasks.domain.statistics.means import Means, combined, folded
from tasks.domain.statistics.narrowing import Counted, beyond_shift
from tasks.domain.statistics.shares import SCARCE

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
    gap that turns round goes on narrowing."""
    gap_K, drawn_BK = bootstrap_columns(gap_PK, draws, seed)
    narrower_B = (np.diff(drawn_BK, axis=1) <= 1e-12).all(axis=1)
    observed = bool((np.diff(gap_K) <= 1e-12).all())
    return {
        "metric": "monotone",
        "k": k_max,
        "estimate": float(narrower_B.mean()),
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
    sign, rows = 1.0 if dear is a else -1.0, []
    for k in ks:
        if k > dear.rollouts:
            continue
        most_P = cheap.rollouts * other_cost_P / cost_P
        k_P = np.minimum(most_P, k)
        less, shown = int((most_P < k).sum()), f"of {len(in_a)} problems"
        if 2 * less > len(in_a):
            why = f"{k} of the dearer cost more than all {cheap.rollouts} of the other on {less} {shown}"
            rows.append({"metric": "equal_tokens", "k": k, "n": len(in_a), "reason": why})
            continue
        other_k_P = k_P * cost_P / other_cost_P
        first = at_fraction(dear.values["pass@k"].data[:, at], k_P)[:, :, None]
        second = at_fraction(cheap.values["pass@k"].data[:, other_at], other_k_P)[:, :, None]
        both = [(sign, folded(first, a.cluster_P[in_a])), (-sign, folded(second, a.cluster_P[in_a]))]
        trained, paired = [dear.trained, cheap.trained], same_seeds([dear, cheap])
        found = combined(both, trained, reach=1.0, shares=True, paired=paired)
        own, other = (float(v.mean()) for v in ((k_P, other_k_P) if dear is a else (other_k_P, k_P)))
        whole = "" if own == round(own) else f"at k = {own:.3g}, "
        said = f"{(k_P * cost_P).mean():,.0f} tokens; {whole}other at k = {other:.3g}"
        fewer = (
            f"on {less} {shown} all {cheap.rollouts} of the cheaper one's cost less, and as many tokens are compared"
        )
        row = told_of(found, len(in_a), alike="the two are alike on every problem")[0]
        why = "; ".join(filter(None, (said, fewer if less else "", row.get("reason"))))
        rows.append({"metric": "equal_tokens", "k": k if dear is a else round(own)} | row | {"reason": why})
    return rows


def at_fraction(values_SPK: np.ndarray, k_P: np.ndarray) -> np.ndarray:
    """(S, P) pass@k at a fraction of k for each problem, on the line between whole k; pass@0 is 0.

    >>> at_fraction(np.array([[[0.5, 0.75]]]), np.array([1.5])).tolist()
    [[0.625]]
    """
    S, P, _ = values_SPK.shape
    from_zero = np.concatenate([np.zeros((S, P, 1)), values_SPK], axis=2)
    low_P = np.clip(np.floor(k_P).astype(int), 0, from_zero.shape[2] - 1)
    high_P = np.minimum(low_P + 1, from_zero.shape[2] - 1)
    at = np.arange(P)
    return from_zero[:, at, low_P] + (k_P - low_P) * (from_zero[:, at, high_P] - from_zero[:, at, low_P])
