"""The answer of a report in a few sentences with intervals and reservations, from the rows of the report's own queries.

A difference in form (no answer, malformed tags, truncation) is never reported as a difference in ability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from tasks.domain.gate import SHARES, Gate, Reason, ScreenedArm, reasons
from tasks.domain.statistics.means import MARGIN
from tasks.report.tables import minus, number, percent

Row = dict[str, Any]
Ask = Callable[[str], pa.Table]
#: A difference in a share of form that is large enough to look like a difference in ability.
UNLIKE = 0.1
#: A training is reported if its steps have at most this many problems.
FEW_GROUPS = 2
#: With fewer held-out problems, the interval of a rate is wider than ±10 points, and the report says "few".
FEW = 100
#: Smallest mean coverage at which the report treats traces as measured whole.
COVERED = 0.8
#: Assumed share of trainings that collapse, for the warning that a study has too few seeds to see one.
COLLAPSE = 0.1
#: Where the rollouts of a row of `report_form` were sampled.
SCREENING, START, TRAINED = "screening", "held-out, start", "held-out, trained"


def answer(ask: Ask, looks: int = 1) -> list[str]:
    """Return the sentences that answer: whether one arm gained more, has more problems with a gradient, learnt at all,
    and has more diverse traces. looks: how often this question has been looked at, including now."""
    summary, form = ask("report_summary").to_pylist(), Form(ask("report_form").to_pylist())
    return [
        *_difference_of_gains(gains(ask, looks), form, broken_gate(ask)),
        _bands(summary, ask("report_band_tests").to_pylist(), form),
        _training(summary, ask("report_gains").to_pylist(), form),
        *_widths(summary, ask("report_diversity").to_pylist(), ask("report_gaps").to_pylist(), form),
    ]


def caveats(ask: Ask, registered: str = "", looks: int = 1) -> list[str]:
    """Return the sentences under "Reservations". registered: a sentence on whether the study was registered."""
    look = "First look at this question in this store."
    if looks > 1:
        look = (
            f"Look {looks} at this question in this store: the interval of the difference of gains is here its"
            " confidence sequence, which holds at all looks together."
        )
    warned = [f"{registered} {look}".strip()]
    heldout = max((row["n"] for row in ask("report_passk").to_pylist() if row["n"]), default=FEW)
    if heldout < FEW:
        warned.append(f"Only {heldout} held-out problems: read the intervals, not the estimates.")
    warned += weak_trainings(ask)
    seeds = len({row["seed"] for row in ask("report_summary").to_pylist()} - {None})
    if seeds == 1:
        warned.append("One training seed: how much another seed would differ is unknown.")
    if seeds > 1 and (unseen := (1 - COLLAPSE) ** seeds) >= 0.05:
        warned.append(
            f"{seeds} training seeds: intervals over seeds are for trainings that differ as these do. Of a recipe that"
            f" collapses once in {1 / COLLAPSE:.0f} trainings, {percent(unseen)} of such studies would see none."
        )
    covered = [r["coverage"] for r in ask("report_diversity_policies").to_pylist() if r["coverage"] is not None]
    if covered and min(covered) < COVERED:
        warned.append(
            f"The encoder read only {percent(min(covered))} of one policy's traces: its diversity is that of openings."
        )
    findings = ask("report_audit")["code"].to_pylist()
    if "different_models" in findings:
        warned.append("The arms have different base models: scaffolds are not the only cause of a difference.")
    if found := len(findings):
        warned.append(f"The audit has {found} finding{'s' if found > 1 else ''} about the design: see Audit.")
    return warned


def weak_trainings(ask: Ask) -> list[str]:
    """Return the sentences on arms with a training without correct rollouts, or with steps of hardly any problem."""
    trainings: dict[tuple[str, int], list[Row]] = {}
    for row in ask("report_live_groups").to_pylist():
        trainings.setdefault((row["arm"], row["seed"]), []).append(row)
    wrong, few = list[str](), dict[int, list[str]]()
    for (arm, _), steps in trainings.items():
        if not any(step["variance"] + step["all_one"] for step in steps):
            wrong.append(arm)
        most = max(step["all_zero"] + step["variance"] + step["all_one"] for step in steps)
        if most <= FEW_GROUPS:
            few.setdefault(most, []).append(arm)
    sentences = [f"No rollout in the training of {listed(wrong)} was correct."] if wrong else []
    return sentences + [
        f"Each step of {listed(arms)} trained on {'1 problem' if most == 1 else f'{most} problems'}."
        for most, arms in few.items()
    ]


def gains(ask: Ask, looks: int) -> list[Row]:
    """Return the rows of the difference of gains. After more than one look they have the interval that is valid over
    all looks, and no p-values, because a p-value is valid for one look only."""
    rows = ask("report_difference_of_gains").to_pylist()
    return rows if looks == 1 else [_at_all_looks(row) for row in rows]


def _at_all_looks(row: Row) -> Row:
    low, high, least = row["sequence_low"], row["sequence_high"], row["detectable_gain"]
    if least is not None and low is not None:
        least += ((high - low) - (row["more_gain_high"] - row["more_gain_low"])) / 2
    silent = dict.fromkeys(("p_adjusted", "p_equivalent_corrected"))
    return row | silent | {"more_gain_low": low, "more_gain_high": high, "detectable_gain": least}


def broken_gate(ask: Ask) -> list[str]:
    """Return the audit's findings on limits of the study's own gate that were not met."""
    return [row["fact"] for row in ask("report_audit").to_pylist() if row["code"] == "gate"]


# ---- spelling of numbers, intervals and lists in sentences


def interval(low: float | None, high: float | None, scale: float) -> str:
    """Return the interval as text after an estimate. scale: 100 for percentage points."""
    if low is None or high is None:
        return ", interval not computed"
    digits = 1 if scale > 1 else 3
    ends = f"[{signed(scale * low, digits)}, {signed(scale * high, digits)}]"
    return f", 95 % interval {ends}" + (", which contains zero" if low <= 0 <= high else "")


def signed(value: float, digits: int = 1) -> str:
    """
    >>> signed(-3.75), signed(0.0421, 3)
    ('−3.8', '+0.042')
    """
    return minus(f"{value:+.{digits}f}")


def points(row: Row, name: str = "gain") -> str:
    """Return a difference of shares in percentage points, with its interval."""
    return f"{signed(100 * row[name])} pp{interval(row[f'{name}_low'], row[f'{name}_high'], 100)}"


def listed(parts: Iterable[str]) -> str:
    """
    >>> listed(["a", "b", "a", "c"])
    'a, b and c'
    """
    *most, last = dict.fromkeys(parts)
    return f"{', '.join(most)} and {last}" if most else last


def excludes_zero(row: Row, name: str) -> bool:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return low is not None and high is not None and not low <= 0 <= high


def corrected_away(row: Mapping[str, Any]) -> bool:
    """Return whether a difference is significant, but no longer so after correction for its family."""
    return row.get("p_adjusted") is not None and row["p_adjusted"] >= 0.05


class Fault(NamedTuple):
    """The worst way in which an arm breaks the form of its answers. share: share of rollouts that do. broken: whether
    it is above the gate's limit. truncated: number of the rollouts without an answer that were cut off."""

    share: float
    words: str
    rollouts: int
    broken: bool
    truncated: int


class Form:
    """What the rows of `report_form` show: whether each arm follows the form of its scaffold."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            self._rows.setdefault((row["arm"], row["sampled"]), []).append(row)

    def sampled(self, where: str) -> bool:
        """Return whether rollouts were sampled at this place of a study."""
        return any(at == where for _, at in self._rows)

    @property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(arm for arm, _ in self._rows))

    @property
    def compared(self) -> str:
        """Return the place of the rollouts that the answer compares."""
        return TRAINED if self.sampled(TRAINED) else START

    def _mean(self, arm: str, sampled: str, name: str) -> float | None:
        """Return a share of an arm's rollouts, averaged over seeds; None if nothing was sampled."""
        rows = self._rows.get((arm, sampled))
        return fmean(row[name] for row in rows) if rows else None

    def _reasons(self, arms: Sequence[str], sampled: str) -> list[Reason]:
        screened = [
            ScreenedArm(
                arm=arm,
                shares={name: self._mean(arm, sampled, name) for name in (*SHARES, "accuracy")},
                live=None,
                taught=any(row["taught"] for row in self._rows[arm, sampled]),
            )
            for arm in arms
            if (arm, sampled) in self._rows
        ]
        return list(reasons(screened, Gate()))

    def withheld(self, arms: Sequence[str], sampled: str) -> str | None:
        """Return why the report must not compare these arms: one does not follow its scaffold's form, at screening or
        at the comparison, or only one of them had lessons. Return None if it may compare them."""
        found = [reason for stand in (SCREENING, sampled) for reason in self._reasons(arms, stand)]
        if not found:
            return None
        what = "form and not what is solved" if any(one.of_form for one in found) else "not their scaffolds alone"
        return f"{'; '.join(dict.fromkeys(reason.words for reason in found))}, so what differs is {what}"

    def broken(self, arms: Iterable[str], sampled: str) -> tuple[str, dict[str, Fault]]:
        """Return the first way in which arms mostly break the form, at the comparison or else at screening: where
        (`held-out` or `screening`), and the faults of the arms that break it; no faults if no arm does."""
        for at, where in ((sampled, "held-out"), (SCREENING, "screening")):
            faults = {arm: fault for arm in arms if (fault := self.worst(arm, at)) and fault.broken}
            for words in dict.fromkeys(fault.words for fault in faults.values()):
                return where, {arm: fault for arm, fault in faults.items() if fault.words == words}
        return "", {}

    def worst(self, arm: str, sampled: str) -> Fault | None:
        """Return the first way in which an arm mostly breaks the form, or else its most frequent one; None without
        rollouts."""
        rows = self._rows.get((arm, sampled))
        if not rows:
            return None
        shares = {name: self._mean(arm, sampled, name) or 0.0 for name in SHARES}
        mostly = (name for name, share in shares.items() if share > getattr(Gate(), name))
        name = next(mostly, max(shares, key=lambda name: shares[name]))
        rollouts, broken = sum(row["rollouts"] for row in rows), shares[name] > getattr(Gate(), name)
        return Fault(shares[name], SHARES[name], rollouts, broken, sum(row["no_answer_truncated"] for row in rows))

    def missing_parts(self, arm: str) -> list[str]:
        """Return the parts that an arm's completions lack, before training or after; empty if nothing is missing."""
        found = [reason.words for stand in (START, TRAINED) for reason in self._reasons([arm], stand)]
        return [listed(found)] if found else []

    def unlike(self, arms: Sequence[str], sampled: str) -> str:
        """Return the shares in which the form of these arms' rollouts differs; empty if they are similar."""
        differing = []
        for name, words in SHARES.items():
            shares = {arm: share for arm in arms if (share := self._mean(arm, sampled, name)) is not None}
            if shares and max(shares.values()) - min(shares.values()) >= UNLIKE:
                differing.append(f"{listed(f'{percent(v)} of {arm}' for arm, v in shares.items())} {words}")
        return f"; this is also a difference of form: of the rollouts, {', '.join(differing)}" if differing else ""

    def learnt(self, arms: Sequence[str]) -> list[str]:
        """Return how much each arm's share without an answer changed, if one change is large enough for a gain."""
        ends = {arm: [self._mean(arm, at, "no_answer") for at in (START, TRAINED)] for arm in arms}
        known = {arm: (start, end) for arm, (start, end) in ends.items() if start is not None and end is not None}
        if not any(abs(end - start) >= UNLIKE for start, end in known.values()):
            return []
        return [
            f"rollouts of {arm} without an answer went from {percent(start)} to {percent(end)}"
            for arm, (start, end) in known.items()
        ]


# ---- which arm gained more: the study's own question

Verdict = Literal["withheld", "unknown", "alike", "undecided", "different"]


def withheld(row: Row, form: Form, gate: Sequence[str], sampled: str) -> str | None:
    """Return why the report must not compare the two arms of a row (their form, the study's gate); None if it may."""
    arms = (row["arm"], row["other"])
    own = [fact for fact in gate if {*arms} & {word.strip(",") for word in fact.split()}]
    kept = f"the study's own gate was not kept: {'; '.join(own)}" if own else None
    return form.withheld(arms, sampled) or kept


def judged(row: Row, form: Form, gate: Sequence[str]) -> tuple[Verdict, str]:
    """Return the conclusion that a row of the difference of gains allows about its arms, and the reasons that limit it.

    gate: the audit's sentences on arms that miss the study's own gate. The conclusion `alike` means that the two gains
    are equal to within MARGIN.
    """
    if why := withheld(row, form, gate, TRAINED):
        return "withheld", why
    if row["more_gain_low"] is None or row["more_gain_high"] is None:
        return "unknown", row["reason"]
    if _equal(row):
        return "alike", ""
    return ("different" if excludes_zero(row, "more_gain") else "undecided"), ""


def _difference_of_gains(rows: Sequence[Row], form: Form, gate: Sequence[str]) -> list[str]:
    """Return one sentence per pair of arms; none if nothing was trained."""
    sentences, trained = list[str](), form.sampled(TRAINED)
    for row in rows:
        if row["source"] != "all" or (row["more_gain"] is None and not trained):
            continue
        arms, more = (row["arm"], row["other"]), 100 * (row["more_gain"] or 0.0)
        verdict, why = judged(row, form, gate)
        if verdict in ("withheld", "unknown"):
            known = verdict == "unknown" and row["more_gain"] is not None
            seen = f" ({signed(more)} pp, {row['n']} problems)" if known else ""
            sentences.append(f"Whether {row['arm']} gained more than {row['other']} is not stated{seen}: {why}.")
            continue
        low, high = row["more_gain_low"], row["more_gain_high"]
        if more < 0:
            arms, more, low, high = arms[::-1], -more, -high, -low
        p = f", p = {row['p_adjusted']:.2g}" if row["p_adjusted"] is not None else ""
        ends = interval(low, high, 100)
        text = f"{arms[0]} gained {signed(round(more, 1))} pp more than {arms[1]}{ends}{p}, {row['n']} problems"
        if not excludes_zero(row, "more_gain"):
            least = row["detectable_gain"]
            guess = "by a spread that two seeds hardly tell " if row.get("seeds") == 2 and least else ""
            size = "none, however large" if least is None else f"{100 * least:.1f} pp"
            found = f" ({guess}this study would find {size})"
            text += f"; undecided which gains more{found}, {_equivalence(row, 'that both gain the same')}"
        elif verdict == "alike":
            text += f"; {_equivalence(row, 'that both gain the same')} all the same"
        if moved := form.learnt(arms):
            text += f"; a gain is also one of form: {listed(moved)}"
        sentences.append(f"{text}; this holds for {row['holds_for']}." if row["holds_for"] else f"{text}.")
    return sentences


def _equivalence(row: Row, what: str) -> str:
    """Return the result of the equivalence test as text. what: the claim that it tests."""
    p = row.get("p_equivalent_corrected")
    if p is None:
        return f"and {what} is not tested"
    joined, shown = ("but", "shown") if _equal(row) else ("and", "not shown")
    return f"{joined} {what} to within {100 * MARGIN:g} pp is {shown} (equivalence, p = {p:.2g})"


def _equal(row: Row) -> bool:
    return (row.get("p_equivalent_corrected") or 1.0) < 0.05


# ---- which arm's bands give more to learn from


def _bands(summary: Sequence[Row], tests: Sequence[Row], form: Form) -> str:
    arms = {row["arm"]: row for row in summary if row["problems"]}
    if not arms:
        return "No problem was screened, so nothing is known of the variance bands."
    counted = listed(
        f"{row['variance']} under {arm} ({percent(row['variance'] / row['problems'])})" for arm, row in arms.items()
    )
    total = max(row["problems"] for row in arms.values())
    text = f"Of {total} screened problems, {counted} had both correct and wrong rollouts, and so a gradient"
    pairs: dict[frozenset[str], dict[str, Row]] = {}
    for row in tests:
        pairs.setdefault(frozenset((row["arm"], row["other"])), {})[row["metric"]] = row
    why = {pair: form.withheld(list(pair), SCREENING) for pair in pairs or [frozenset(arms)]}
    compared = "".join(_of_bands(found) for pair, found in pairs.items() if not why[pair])
    mute = list(dict.fromkeys(one for one in why.values() if one))
    if mute and not compared:
        return f"{text}. Whether one arm has more to learn from is not stated: {mute[0]}."
    text += compared.replace("; ", "; that is ", 1) + form.unlike(list(arms), SCREENING)
    return f"{text}. Other pairs of arms are not compared: {'; '.join(mute)}." if mute else f"{text}."


def _of_bands(found: Mapping[str, Row]) -> str:
    """Return the end of the sentence on the bands of two arms. found: rows of their crosstab, by metric."""
    text, ratio, mcnemar = "", found.get("ratio"), found.get("mcnemar")
    if ratio and ratio["estimate"] is not None:
        text += f"; {ratio['estimate']:.2f} times as many for {ratio['arm']} as for {ratio['other']}"
        if ratio["low"] is not None:
            text += f" [{ratio['low']:.2f}, {ratio['high']:.2f}]"
    if mcnemar and mcnemar["p_value"] is not None:
        p = mcnemar["p_adjusted"]
        verdict = "more than chance explains" if p < 0.05 else "a difference that chance may make"
        text += f", {verdict} (exact McNemar, corrected p = {p:.2g})"
    return text


# ---- the effect of training on held-out accuracy, which "moved" only if the interval excludes zero


def _training(summary: Sequence[Row], gains: Sequence[Row], form: Form) -> str:
    trained: dict[str, list[Row]] = {}
    for row in summary:
        if row["gain"] is not None:
            trained.setdefault(row["arm"], []).append(row)
    if not trained:
        return "Nothing was trained in this run."
    over_seeds = {row["arm"]: row for row in gains if row["source"] == "all"}
    moved, others, idle, unchanged = list[str](), list[str](), list[str](), list[str]()
    for arm, seeds in trained.items():
        if all(row["updates"] == 0 for row in seeds):
            idle.append(arm)
            continue
        gain = over_seeds.get(arm, seeds[0])
        before, after = (percent(fmean(row[f"heldout_{end}"] for row in seeds)) for end in ("before", "after"))
        least, most = (signed(100 * end(row["gain"] for row in seeds)) for end in (min, max))
        several = f"; {len(seeds)} seeds from {least} to {most}" if len(seeds) > 1 else ""
        clear = excludes_zero(gain, "gain")
        (moved if clear else others).append(f"{arm} from {before} to {after} ({points(gain)}{several})")
        if gain["gain_low"] is not None and (not clear or corrected_away(gain)):
            counted = " after correction for all gains" if clear else ""
            shown = _equivalence(gain, "that it is unchanged")
            unchanged.append(f"undecided whether {arm} changed{counted}, {shown}")
    parts = [f"training moved held-out accuracy of {listed(moved)}"] if moved else []
    parts += [f"held-out accuracy went under {listed(others)}"] if others else []
    parts += [f"nothing was learnt under {listed(idle)}: training made no update"] if idle else []
    parts += unchanged
    if missing := [why for arm in trained for why in form.missing_parts(arm)]:
        parts.append(f"{listed(missing)}: a gain is then one of form, not of solved problems")
    if moved_form := form.learnt(list(trained)):
        parts.append(f"part of that is form: {listed(moved_form)}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


# ---- whether one arm's traces lie further apart than another's, and whether more than a shift closes their pass@k


def _widths(summary: Sequence[Row], compared: Sequence[Row], gaps: Sequence[Row], form: Form) -> list[str]:
    """Return one sentence per pair of arms, at the earliest steps at which they were compared."""
    rows = [r for r in compared if r["metric"] == "diversity" and r["difference"] is not None]
    rows.sort(key=lambda r: (r["basis"] != "equal_n", r["step"], r["other_step"]))
    if len({r["arm"] for r in summary}) == 1:
        return ["This study has one arm, so no arms are compared."]
    earliest: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row["arm"] != row["other"]:
            earliest.setdefault((row["arm"], row["other"]), row)
    if not earliest:
        return ["This run does not compare two arms' diversity."]
    trained = any(r["gain"] is not None for r in summary)
    ordered = sorted(earliest.values(), key=lambda r: (r["step"], r["other_step"]))
    return list(dict.fromkeys(_of_two(row, gaps, form, trained) for row in ordered))


def _of_two(row: Row, gaps: Sequence[Row], form: Form, trained: bool) -> str:
    arms, sampled = (row["arm"], row["other"]), TRAINED if row["step"] else START
    if why := form.withheld(arms, sampled):
        return f"Whether one arm's search is wider is not stated: {why}."
    return (
        f"{'At the start of training, traces' if trained and not row['step'] else 'Traces'}"
        f" of {row['arm']} lay {number(row['mean'])} apart and those of {row['other']}"
        f" {number(row['other_mean'])} (difference {signed(row['difference'], 3)}"
        f"{interval(row['difference_low'], row['difference_high'], 1)}"
        f"{'' if excludes_zero(row, 'difference') else ', undecided'},"
        f" {row['n']} problems)" + _closing(row, gaps) + form.unlike(arms, sampled) + "."
    )


def _closing(row: Row, gaps: Sequence[Row]) -> str:
    """Return the end of the sentence on two policies' diversity: how much the gap in pass@k narrows with k, and how
    much of that a constant shift of logits does not explain. Only the unexplained part counts as diversity. row: the
    comparison of their diversity."""
    ends = {(row["arm"], row["step"]), (row["other"], row["other_step"])}
    theirs = [g for g in gaps if {(g["arm"], g["step"]), (g["other"], g["other_step"])} == ends]
    found = {g["metric"]: g for g in theirs if g["estimate"] is not None}
    if not {"closure", "closure_of_shift", "closure_beyond_shift"} <= found.keys():
        return ""
    seen, shift, beyond = (found[m] for m in ("closure", "closure_of_shift", "closure_beyond_shift"))
    moved = "closed" if seen["estimate"] >= 0 else "widened"
    text = (
        f"; the gap of their pass@k {moved} by {100 * abs(seen['estimate']):.1f} pp up to k = {seen['k']}, where a"
        f" constant shift of logits alone would close {signed(100 * shift['estimate'])} pp"
        f" (beyond that {points(beyond, 'estimate')})"
    )
    if not excludes_zero(beyond, "estimate"):
        return f"{text}: no evidence of width"
    return f"{text}: no evidence of width after correction" if corrected_away(beyond) else text
