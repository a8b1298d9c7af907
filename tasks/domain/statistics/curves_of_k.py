"""Curves of a policy over k, such as pass@k, with pointwise and simultaneous intervals, and contrasts of two curves.

Axes: S seeds (adapters of one recipe), P problems, K values of k.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from storage.estimates import pass_all_k, pass_at_k, resample_classes
from tasks.domain.statistics import means
from tasks.domain.statistics.shares import SCARCE, proportions

Row = dict[str, Any]
METRICS = {"pass@k": pass_at_k, "pass^k": pass_all_k}
INCOMPLETE = "no problem was evaluated under every seed"


@dataclass(frozen=True, slots=True)
class KCurve:
    """The curves of one policy, over the problems that all its seeds have.

    values: metric → values by k (0 where n < k), and in the last column the cluster of near-duplicates. groups:
    rollouts, correct rollouts and tokens per rollout of each problem. known: indices of k for which every problem has
    enough rollouts. rollouts: size of the smallest group. tokens_per_rollout: mean, or None if lengths are unknown.
    """

    values: dict[str, means.Seeded]
    groups: means.Seeded
    known: list[int]
    rollouts: int
    policies: int
    tokens_per_rollout: float | None

    @property
    def n(self) -> int:
        return len(self.groups.problem_P)

    def rows(self, ks: Sequence[int], draws: int, seed: int) -> list[Row]:
        """Return rows with metric, k, estimate, intervals, n, rollouts, policies, tokens, holds_for, reason."""
        rows = []
        why = f"a problem has {self.rollouts} rollouts, fewer than k = {{}}" if self.n else INCOMPLETE
        for metric, values in self.values.items():
            values_SCK = values.clustered()
            about = {"metric": metric, "n": self.n, "clusters": values_SCK.shape[1]}
            about |= {"rollouts": self.rollouts, "policies": self.policies}
            found: dict[int, Row] = {}
            if self.known:
                known_SCK = values_SCK[:, :, self.known]
                beyond = means.together(known_SCK.mean(axis=0), draws, seed)
                alone, wide = (levels(known_SCK, values.trained, factor) for factor in (1.0, beyond))
                for i, row, band in zip(self.known, alone, wide, strict=True):
                    found[i] = row | {"low_simultaneous": band["low"], "high_simultaneous": band["high"]}
            for i, k in enumerate(ks):
                tokens = None if self.tokens_per_rollout is None else k * self.tokens_per_rollout
                rows.append(about | {"k": k, "tokens": tokens} | found.get(i, {"reason": why.format(k)}))
        return rows


def levels(values_SPV: np.ndarray, trained: bool, beyond: float = 1.0, *, gradual: bool = False) -> list[Row]:
    """Return one row per column: the mean share, its interval (`proportions`) and population, or why there is none."""
    mean = means.combined([(1.0, values_SPV)], [trained])
    low_V, high_V = proportions(values_SPV, trained, beyond, gradual=gradual)
    why = {"low": None, "high": None, "reason": means.ONE_PROBLEM if mean.n < 2 else means.SILENT}
    return [
        {"estimate": float(at), "holds_for": mean.holds_for, "clusters": values_SPV.shape[1]}
        | ({"low": float(low), "high": float(high)} if np.isfinite(low) else why)
        for at, low, high in zip(mean.estimate_V, low_V, high_V, strict=True)
    ]


def k_curve(of: Mapping[str, np.ndarray], ks: Sequence[int]) -> KCurve:
    """Build the curves from columns of groups (`Counts` of tasks.measures), one row per problem and policy. Groups of
    one adapter and problem are averaged. Adapter 0 means no adapter; the policy then has no seeds."""
    size_N, correct_N, tokens_N = (of[name] for name in ("group_size", "num_correct", "num_tokens"))
    rollouts, tokens = int(size_N.sum()), float(tokens_N.sum())  # tokens are NaN for imported counts
    lengths_known = np.isfinite(tokens) and rollouts > 0
    cost_N = tokens_N / size_N if lengths_known else np.zeros(len(size_N))

    def laid_out(*values: np.ndarray) -> means.Seeded:
        return means.by_seed(of["problem"], of["adapter"], np.column_stack([*values, of["cluster"]]))

    groups, fewest = laid_out(size_N, correct_N, cost_N), int(size_N.min()) if len(size_N) else 0
    values = {name: laid_out(estimate(size_N, correct_N, ks).filled(0.0)) for name, estimate in METRICS.items()}
    known = [i for i, k in enumerate(ks) if k <= fewest and len(groups.problem_P)]
    policies, per_rollout = len(np.unique(of["policy"])), tokens / rollouts if lengths_known else None
    return KCurve(values, groups, known, fewest, policies, per_rollout)


def doublings(curve: KCurve, ks: Sequence[int]) -> list[Row]:
    """Return pass@k with its interval, and its increase over the previous k. k is at most the size of a group."""
    if not curve.n:
        return [{"k": k, "reason": INCOMPLETE} for k in ks]
    passing = curve.values["pass@k"]
    values_SCK = passing.clustered()
    rows = [{"k": k} | row for k, row in zip(ks, levels(values_SCK, passing.trained), strict=True)]
    if len(ks) < 2:
        return rows
    more = means.combined([(1.0, np.diff(values_SCK, axis=2))], [passing.trained], reach=1.0)
    low_V, high_V = more.interval()
    for row, at, low, high in zip(rows[1:], more.estimate_V, low_V, high_V, strict=True):
        row["doubling"] = float(at)
        if np.isfinite(low):
            row |= {"doubling_low": max(0.0, float(low)), "doubling_high": float(high)}
    return rows


# The gap between two policies' pass@k closes as k grows, because pass@k cannot exceed 1. It closes even if the policies
# differ only by a constant logit on every problem. That part of the closure is subtracted from the observed closure;
# the excess shows a difference in the diversity of correct solutions.
#
# Axes: C classes of equal (n, c), J points of a grid of logits, B bootstrap draws, K values of k.

GRID_J = np.linspace(-10.0, 10.0, 61)
STEPS = 300  # of expectation-maximisation; pass@k up to the group size is then stable to four digits


DRAWS = 200  # for a standard error only
#: Two policies on their common problems, (S, P, 4) each: rollouts, correct ones, pass@k at the first and last k.
Pair = Sequence[np.ndarray]


def beyond_shift(
    pair: Pair, trained: Sequence[bool], ks: tuple[int, int], cluster_P: np.ndarray, seed: int, *, paired: bool = False
) -> tuple[float, means.Means]:
    """Return (null, excess). A gap in pass@k usually shrinks from the smallest to the largest k. null: how much it
    would shrink if the logits of the two policies differed by a constant. excess: how much more it shrinks.

    The constant is fitted once from each policy, and the two results are averaged. The variance is that of a bootstrap
    over problems (near-duplicates together) plus the spread over seeds. paired: both policies use the same adapters, so
    that a seed belongs to both.
    """
    found, at_P = np.unique(cluster_P, return_inverse=True)
    size = 1 if means.uneven(at_P) else len(found)
    drawn_BP = resample_classes(np.ones(len(found), np.int64), DRAWS, seed)[:, at_P]
    drawn_BP = np.concatenate([np.ones((1, len(at_P))), drawn_BP])
    drawn_BP /= drawn_BP.sum(axis=1, keepdims=True)
    null_B, excess_B = _null_and_excess(pair, ks, drawn_BP)
    problems, added, over = float(excess_B[1:].var(ddof=1)), 0.0, 0.0
    seeded = [place for place in (0, 1) if trained[place] and len(pair[place]) > 1]
    for places in [(0, 1)] if paired and seeded else [(place,) for place in seeded]:
        seeds = len(pair[places[0]])
        alone = [[one[s : s + 1] if i in places else one for i, one in enumerate(pair)] for s in range(seeds)]
        part = float(np.var([_null_and_excess(one, ks, drawn_BP[:1])[1][0] for one in alone], ddof=1)) / seeds
        added, over = added + part, over + part**2 / (seeds - 1)
    known = np.array([size > 1 and problems > 0])
    fewest = min((len(one) for one, was in zip(pair, trained, strict=True) if was), default=0)
    parts = (problems, max(size - 1.0, 1.0), added, added**2 / over if over > 0 else 1.0)
    spread = means.Spread(*(np.array([value]) for value in parts))
    return float(null_B[0]), means.Means(excess_B[:1], spread, known, known, np.zeros(1, bool), size, fewest, 1.0)


def _null_and_excess(pair: Pair, ks: tuple[int, int], weights_BP: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (null_B, excess_B). Both are positive for a closing gap, whichever policy is ahead."""
    a_B2, b_B2 = (weights_BP @ one_SP4[:, :, 2:].mean(axis=0) for one_SP4 in pair)
    gap_B2 = a_B2 - b_B2
    sign = 1.0 if gap_B2[0, 0] >= 0 else -1.0
    closures = []
    for one_SP4 in pair:
        weights = np.tile(weights_BP, (1, len(one_SP4))) / len(one_SP4)
        q_BJ = spread_of_difficulty(one_SP4[:, :, 0].ravel(), one_SP4[:, :, 1].ravel(), weights)
        of_a, of_b = (np.array(shifted(q_BJ, mean_B, ks)) for mean_B in (a_B2[:, 0], b_B2[:, 0]))
        closures.append((of_a - of_b)[0] - (of_a - of_b)[1])
    null_B = sign * np.mean(closures, axis=0)
    return null_B, sign * (gap_B2[:, 0] - gap_B2[:, 1]) - null_B


def spread_of_difficulty(n_P: np.ndarray, c_P: np.ndarray, weights_BP: np.ndarray) -> np.ndarray:
    """Return (B, J) weights of the grid's logits, for each draw's weights of the problems. The weights are the
    nonparametric maximum likelihood estimate of the distribution of success rates."""
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
    """Return pass@k at each of the two ks, one value per bootstrap draw. In each draw all logits are shifted by the
    amount that makes pass@k at the first k equal to first_B."""

    def passing(shift_B: np.ndarray, k: int) -> np.ndarray:
        fail_BJ = 1 / (1 + np.exp(GRID_J + shift_B[:, None]))
        return (q_BJ * (1 - fail_BJ**k)).sum(axis=1)

    ends_B = np.full(len(q_BJ), 25.0)
    at_B = means.bisected(-ends_B, ends_B, lambda shift_B: passing(shift_B, ks[0]) >= first_B)
    return passing(at_B, ks[0]), passing(at_B, ks[1])


# ---- contrasts of two curves over k on their common problems: gaps, their closure, and gaps at equal cost


def contrast_curves(a: KCurve, b: KCurve, ks: Sequence[int], draws: int, seed: int) -> list[Row]:
    """Return the rows `gap`, `closure` and `monotone` for two pass@k curves on their common problems."""
    common = means.on_common_problems([curve.values["pass@k"] for curve in (a, b)])
    if not (n := len(common[0].problem_P)):
        return [{"metric": "gap", "n": 0, "reason": "no problem in common"}]
    known = [i for i in a.known if i in b.known]
    rows: list[Row] = [
        {"metric": "gap", "k": k, "n": n, "reason": f"a problem has fewer than k = {k} rollouts in one of the two"}
        for i, k in enumerate(ks)
        if i not in known
    ]
    if not known:
        return rows
    both = [one.replaced(one.values_SPV[:, :, known]) for one in common]
    gaps = estimate_rows(means.contrast((1.0, -1.0), both, reach=1.0), n, alike="the two are alike on every problem")
    rows += [{"metric": "gap", "k": ks[i]} | row for i, row in zip(known, gaps, strict=True)]
    if len(known) < 2:
        return [*rows, {"metric": "closure", "n": n, "reason": "one k has nothing to close"}]
    first_CK, second_CK = (one.clustered().mean(axis=0) for one in both)
    gap_CK, k = first_CK - second_CK, ks[known[-1]]
    sign = 1.0 if gap_CK[:, 0].mean() >= 0 else -1.0
    ends = [one.replaced(one.values_SPV[:, :, [0, len(known) - 1]]) for one in both]
    narrower = [one.replaced(sign * (one.values_SPV[:, :, :1] - one.values_SPV[:, :, 1:2])) for one in ends]
    closure = means.contrast((1.0, -1.0), narrower, reach=1.0, shares=False)
    return [
        *sorted(rows, key=lambda r: r["k"]),
        {"metric": "closure", "k": k} | estimate_rows(closure, n, alike="every problem closes by the same amount")[0],
        *_on_scales(sign, ends, k, n),
        _monotone(sign * gap_CK, k, draws, seed) | {"n": n},
    ]


def estimate_rows(found: means.Means, n: int, alike: str) -> list[Row]:
    """Return one row per column: estimate, interval, p, detectable difference, and the population of the interval;
    `ends` is the interval as a function of its level. n: problems, where near-duplicates count separately."""

    def ends(column: int, level: float) -> tuple[float, float]:
        low_V, high_V = found.interval(level)
        return float(low_V[column]), float(high_V[column])

    low_V, high_V = found.interval()
    p_V, seen_V = found.p_value(), found.detectable()
    rows = []
    for i, estimate in enumerate(found.estimate_V):
        row: Row = {"estimate": float(estimate), "n": n, "clusters": found.n, "seeds": found.seeds or None}
        row["holds_for"] = found.holds_for
        if found.known_V[i]:
            row |= {"low": float(low_V[i]), "high": float(high_V[i]), "ends": partial(ends, i)}
        if np.isfinite(seen_V[i]):
            row["detectable"] = float(seen_V[i])
        if np.isfinite(p_V[i]):
            row["p_value"] = float(p_V[i])
        else:
            row["reason"] = found.unknown(i, alike)
        rows.append(row)
    return rows


def beyond_a_shift(a: KCurve, b: KCurve, ks: Sequence[int], seed: int) -> list[Row]:
    """Return `closure_of_shift`, the closure of the gap that a constant shift of logits would give, and
    `closure_beyond_shift`, the rest of the observed closure, which is evidence of more diverse solutions."""
    known = [i for i in a.known if i in b.known]
    groups = means.on_common_problems([a.groups, b.groups])
    passing = means.on_common_problems([a.values["pass@k"], b.values["pass@k"]])
    n = len(groups[0].problem_P)
    if n < 2 or len(known) < 2:
        return []
    first, last = known[0], known[-1]
    pair = [
        np.concatenate([one.values_SPV[:, :, :2], own.values_SPV[:, :, [first, last]]], axis=2)
        for one, own in zip(groups, passing, strict=True)
    ]
    paired, trained = means.same_adapters([one.adapter_S for one in groups]), [one.trained for one in groups]
    null, excess = beyond_shift(pair, trained, (ks[first], ks[last]), groups[0].cluster_P, seed, paired=paired)
    return [
        {"metric": "closure_of_shift", "k": ks[last], "estimate": null, "n": n},
        {"metric": "closure_beyond_shift", "k": ks[last]} | estimate_rows(excess, n, alike="the two are alike")[0],
    ]


SCALES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
    "closure_of_failures": (lambda m: -np.log(1 - m), lambda m: 1 / (1 - m)),
    "closure_of_logits": (lambda m: np.log(m) - np.log(1 - m), lambda m: 1 / (m * (1 - m))),
}


def _on_scales(sign: float, ends: Sequence[means.Seeded], k: int, n: int) -> list[Row]:
    """Return the closure of the gap on two other scales: the log ratio of failures (1 − pass@k), and the difference in
    logits of pass@k. Both are linearised. ends: pass@k at the smallest and the largest k."""
    shares = [one.values_SPV[:, :, :2].mean(axis=(0, 1)) for one in ends]
    rows: list[Row] = []
    for metric, (scale, slope) in SCALES.items():
        taken = [1 - m if metric == "closure_of_failures" else np.minimum(m, 1 - m) for m in shares]
        if min(one.min() for one in taken) * n < SCARCE:
            why = f"fewer than {SCARCE:g} problems' worth of what a logarithm is taken of"
            rows.append({"metric": metric, "k": k, "n": n, "reason": why})
            continue
        linear = [
            one.replaced(sign * (one.values_SPV[:, :, :2] * slope(m) @ np.array([[1.0], [-1.0]])))
            for one, m in zip(ends, shares, strict=True)
        ]
        found = means.contrast((1.0, -1.0), linear, shares=False)
        at = sign * (scale(shares[0]) - scale(shares[1])) @ np.array([1.0, -1.0])
        rows.append(
            {"metric": metric, "k": k} | estimate_rows(replace(found, estimate_V=np.array([at])), n, "alike")[0]
        )
    return rows


def _monotone(gap_PK: np.ndarray, k_max: int, draws: int, seed: int) -> Row:
    """Return the share of bootstrap draws in which every step of k narrows the gap. The gap is positive at the smallest
    k and may change sign. Equal problems are drawn as one class of a multinomial."""
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
    """Return `equal_tokens` rows: gaps at equal cost per problem. a, b: curves at every k from 1 to their rollouts.

    The cost is that of k rollouts of the more expensive policy. For the same cost the cheaper policy has a fractional
    k, at which its pass@k is interpolated. If the cheaper policy has too few rollouts, the cost is that of all its
    rollouts. There are no rows if lengths are unknown, and no estimates if most problems lack rollouts.
    """
    dear, cheap = (a, b) if (a.tokens_per_rollout or 0) >= (b.tokens_per_rollout or 0) else (b, a)
    passing = means.on_common_problems([dear.values["pass@k"], cheap.values["pass@k"]])
    groups = means.on_common_problems([dear.groups, cheap.groups])
    cost_P, other_cost_P = (one.values_SPV[:, :, 2].mean(axis=0) for one in groups)
    if not (n := len(cost_P)) or not dear.tokens_per_rollout or not cheap.tokens_per_rollout or not other_cost_P.all():
        return []
    sign, rows = 1.0 if dear is a else -1.0, []
    for k in ks:
        if k > dear.rollouts:
            continue
        k_P = np.minimum(cheap.rollouts * other_cost_P / cost_P, k)
        less, of_all = int((k_P < k).sum()), f"of {n} problems"
        if 2 * less > n:
            why = f"{k} of the dearer cost more than all {cheap.rollouts} of the other on {less} {of_all}"
            rows.append({"metric": "equal_tokens", "k": k, "n": n, "reason": why})
            continue
        other_k_P = k_P * cost_P / other_cost_P
        both = [
            one.replaced(at_fraction(one.values_SPV[:, :, :-1], of_P)[:, :, None])
            for one, of_P in zip(passing, (k_P, other_k_P), strict=True)
        ]
        found = means.contrast((sign, -sign), both, reach=1.0)
        row = estimate_rows(found, n, alike="the two are alike on every problem")[0]
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
    """Return (S, P) pass@k at a fractional k for each problem, interpolated between whole k. pass@0 is 0.

    >>> at_fraction(np.array([[[0.5, 0.75]]]), np.array([1.5])).tolist()
    [[0.625]]
    """
    from_zero = np.pad(values_SPK, ((0, 0), (0, 0), (1, 0)))
    last, at = from_zero.shape[2] - 1, np.arange(len(k_P))
    low_P = np.clip(np.floor(k_P).astype(int), 0, last)
    below, above = from_zero[:, at, low_P], from_zero[:, at, np.minimum(low_P + 1, last)]
    return below + (k_P - low_P) * (above - below)
