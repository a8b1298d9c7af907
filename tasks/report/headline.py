"""The first screen of a study: a sentence that answers its question, the population for which it holds, a chart and
tiles."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from storage.reading.figures import answer_figure
from tasks.domain.statistics.means import MARGIN
from tasks.report import findings
from tasks.report.tables import minus, number, percent

#: The two policies of a comparison.
ENDS = (("arm", "step"), ("other", "other_step"))
#: Accuracy below which a gain within MARGIN is a large part of what is solved.
FEW = 5 * MARGIN
#: Order of the verdicts on pairs of arms; the first one present is the study's.
VERDICT_ORDER = ("different", "alike", "undecided", "withheld", "unknown")
NOT_SHOWN = "no difference shown"
#: Words of a question that asks about width.
OF_WIDTH = re.compile(r"\b(wide|wider|width|diverse|diversity)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure for each arm or objective. values: pairs of name and figure. words: the conclusion about their
    difference."""

    title: str
    values: tuple[tuple[str, str], ...]
    words: str = ""


@dataclass(frozen=True, slots=True)
class Headline:
    """The words and figures of a first screen. verdict: the answer in one sentence. holds: the smallest difference that
    the study could find, and the population that the answer holds for. audit: a sentence on the audit's findings; empty
    if there are none."""

    verdict: str
    holds: str
    audit: str
    tiles: tuple[Tile, ...]


def headline(ask: findings.Ask, inputs: Collection[str], looks: int = 1, *, study: str, asks: str = "") -> Headline:
    """Return the answer to the question of a study: about objectives or a search if the study has them, otherwise about
    its arms. inputs: names of what the report is made from. study: its name. asks: its question; if the question names
    one objective or one search method, the answer is about that one. looks: see `findings.answer`."""
    form, figure = findings.Form(ask("report_form").to_pylist()), answer_figure(inputs)
    rows = ask(figure.query).to_pylist()
    levels = [row for row in rows if row["row"] == "level"]
    pairs = [row for row in rows if row["row"] == "difference" and row["gain_low"] is not None]
    if figure.name == "answer_objectives":
        verdict, holds = _of_objectives(levels, pairs, asks)
        if OF_WIDTH.search(asks) and (width := _width_of_objectives(ask, asks)):
            verdict, holds = width, _joined(verdict, holds)
    elif figure.name == "answer_search":
        verdict, holds = _of_search(levels, pairs, asks)
    else:
        verdict, holds = _of_gains(ask, form, levels, looks, study) or _of_levels(ask, form, levels, pairs, study)
    codes = Counter(code.replace("_", " ") for code in ask("report_audit").to_pydict().get("code", ()))
    found = f"{codes.total()} finding{'' if codes.total() == 1 else 's'}"
    kinds = [f"{code} ({times} times)" if times > 1 else code for code, times in codes.items()]
    audit = f"The audit has {found} about the design: {findings.listed(kinds)}." if codes else ""
    return Headline(verdict, _joined(holds, *findings.hardly_taught(ask)), audit, tuple(_tiles(ask, form, inputs)))


def _points(share: float) -> str:
    """
    >>> _points(0.338), _points(0.05), _points(0.0104)
    ('33.8 points', '5 points', '1 point')
    """
    text = f"{abs(100 * share):.1f}".removesuffix(".0")
    return f"{text} point{'' if text == '1' else 's'}"


def _named(pairs: Sequence[findings.Row], asks: str) -> Sequence[findings.Row]:
    """Return the pairs whose `other` is the only one that the question names; otherwise all."""

    def words(text: str) -> str:
        return f" {' '.join(re.findall(r'[a-z0-9]+', text.lower().replace('_', ' ')))} "

    named = {row["other"] for row in pairs if words(row["other"].partition(":")[0]) in words(asks)}
    return [row for row in pairs if row["other"] in named] if len(named) == 1 else pairs


def _sentence(row: findings.Row, one: str, verb: str, other: str, *, turned: bool = False) -> str:
    """Return the sentence on a difference (columns gain, gain_low, gain_high). turned: name the better one first."""
    sign = -1 if turned and row["gain"] < 0 else 1
    first, second = (one, other)[::sign]
    low, high = (minus(f"{end:+.1f}") for end in sorted(sign * 100 * row[f"gain_{end}"] for end in ("low", "high")))
    than = "more" if sign * row["gain"] >= 0 else "less"
    return f"{first} {verb} {_points(row['gain'])} {than} than {second} (95 % interval {low} to {high})."


def _not_compared(
    form: findings.Form, pairs: Sequence[findings.Row], sampled: str, why: str, study: str
) -> tuple[str, str]:
    """Return the headline of arms that are not compared. It names all arms that break the form of their answers, or
    else says why the first pair is not compared."""
    broken = form.broken(dict.fromkeys(arm for row in pairs for arm in (row["arm"], row["other"])), sampled)
    if not broken:
        return (
            f"Not compared: {pairs[0]['arm']} and {pairs[0]['other']} differ in more than their scaffolds.",
            f"{why}.",
        )
    look = f"To read completions: 'varband store show {study} --completions 3 --failed'."
    holds = f"A difference would be one of form, not of solved problems. {look}"
    return f"Not compared: of the rollouts, {broken}.", holds


def _of_gains(
    ask: findings.Ask, form: findings.Form, levels: Sequence[findings.Row], looks: int, study: str
) -> tuple[str, str] | None:
    """Return the verdict on the pair of trained arms that differs most; None without a pair."""
    gate, rows = findings.broken_gate(ask), findings.gains(ask, looks)
    pairs = [
        (findings.judged(row, form, gate), row)
        for row in rows
        if row["source"] == "all" and row["more_gain"] is not None
    ]
    if not pairs:
        return None
    pairs.sort(key=lambda pair: (VERDICT_ORDER.index(pair[0][0]), -abs(pair[1]["more_gain"])))
    ((verdict, why), row), arms = pairs[0], f"{pairs[0][1]['arm']} and {pairs[0][1]['other']}"
    if verdict == "withheld":
        return _not_compared(form, [one for _, one in pairs], findings.TRAINED, why, study)
    if verdict == "unknown":
        return f"Undecided: the interval of the difference between {arms} is not known.", f"{why or 'no interval'}."
    row |= {"gain": row["more_gain"], "gain_low": row["more_gain_low"], "gain_high": row["more_gain_high"]}
    more = _sentence(row, row["arm"], "gained", row["other"], turned=True)
    solved = [level[f"{end}_rate"] or 0.0 for level in levels for end in ("before", "after")]
    few = f"All solve less than {percent(FEW)}: {_points(MARGIN)} are much." if max(solved, default=1.0) < FEW else ""
    differ = sum(one == "different" for (one, _), _ in pairs)
    several = ""
    if len(pairs) > 1:
        counted = f"{differ or 'none'} differ{'s' if differ == 1 else ''}"
        several = f"Of {len(pairs)} pairs of arms {counted}, corrected for their number."
    shown = few if verdict == "alike" else _detectable(row)
    holds = _joined(several, shown, _number([row]), _holds(row))
    alike = f"No difference: {arms} gain the same to within {_points(MARGIN)} (equivalence test at 5 %)."
    return {"different": more, "alike": alike, "undecided": f"Undecided: {more}"}[verdict], holds


def _of_levels(
    ask: findings.Ask, form: findings.Form, levels: Sequence[findings.Row], pairs: Sequence[findings.Row], study: str
) -> tuple[str, str]:
    """Return the headline of a study with one trained arm, or with none."""
    if trained := [row for row in levels if row["gain"] is not None and row["gain_low"] is not None]:
        row = max(trained, key=lambda one: abs(one["gain"]))
        low, high = (minus(f"{100 * row[f'gain_{end}']:+.1f}") for end in ("low", "high"))
        verb = "gained" if row["gain"] > 0 else "lost"
        words = f"{row['arm']} {verb} {_points(row['gain'])} (95 % interval {low} to {high})."
        return words if findings.excludes_zero(row, "gain") else f"No gain is shown: {words}", _holds(row)
    number_of = _joined("Nothing was trained.", _number(levels))
    if not pairs:
        return _untrained(ask, levels), number_of
    why = [form.withheld((one["arm"], one["other"]), findings.START) for one in pairs]
    sound = [one for one, reason in zip(pairs, why, strict=True) if not reason]
    if not sound:
        return _not_compared(form, pairs, findings.START, why[0] or "", study)
    row = max(sound, key=lambda one: (findings.excludes_zero(one, "gain"), abs(one["gain"])))
    words = _sentence(row, row["arm"], "solves", row["other"], turned=True)
    wider = _wider(ask)
    width = f"Traces: {wider}. " if wider else ""
    undecided = "" if findings.excludes_zero(row, "gain") else "Accuracy is undecided: " if width else "Undecided: "
    return f"{width}{undecided}{words}", number_of


def _untrained(ask: findings.Ask, arms: Sequence[findings.Row]) -> str:
    """Return the accuracy of arms that are not compared; of a single arm also how many problems have a gradient."""
    if not arms:
        return "Nothing was evaluated."
    if len(arms) > 1:
        return findings.listed(f"{row['arm']} solves {percent(row['after_rate'])}" for row in arms) + "."
    (row,) = arms
    low, high = row["after_rate_low"], row["after_rate_high"]
    ends = "" if low is None or high is None else f" (95 % interval {percent(low)} to {percent(high)})"
    words = f"{row['arm']} solves {percent(row['after_rate'])}{ends}"
    for screened in ask("report_summary").to_pylist()[:1]:
        words += f", and {screened['variance']} of {screened['problems']} screened problems have a gradient"
    return f"{words}."


def _of_objectives(levels: Sequence[findings.Row], pairs: Sequence[findings.Row], asks: str) -> tuple[str, str]:
    if not pairs:
        return "No objective can be compared: no interval is known.", _number(levels)
    clear = [row for row in pairs if findings.excludes_zero(row, "gain") and not findings.corrected_away(row)]
    asked = _named(pairs, asks)
    row = max([row for row in clear if row in asked] or asked, key=lambda one: abs(one["gain"]))
    who = row["other"] + (f" on {row['arm']}" if len({one["arm"] for one in pairs}) > 1 else "")
    words = _sentence(row, who, "gained", "the study's own objective")
    more = sum(one["gain"] > 0 for one in clear)
    counted = [
        f"{n or 'none'} gain{'s' * (n == 1)} {than}" for n, than in ((more, "more"), (len(clear) - more, "less"))
    ]
    count = f"Of {len(pairs)} objectives {' and '.join(counted)}, corrected for their number." if len(pairs) > 1 else ""
    if findings.excludes_zero(row, "gain") and not clear:
        chance = f"chance alone may give this difference (p = {row['p_adjusted']:.2f})"
        count = f"Corrected for several comparisons, {chance}."
    if all(abs(one[f"gain_{end}"]) < MARGIN for one in pairs for end in ("low", "high")):
        several = f"all {len(pairs)} objectives gain" if len(pairs) > 1 else f"{who} gains"
        alike = f"No difference: {several} the same as the study's own objective to within {_points(MARGIN)}."
        return alike, _joined(_number(pairs), _holds(row))
    if row in clear and not more and len(pairs) > 1 and asked is pairs:
        difference = words.replace(" than the study's own objective", "")
        words = f"None of {len(pairs)} objectives gains more than the study's own: {difference}"
        count = f"{len(clear)} gain{'s' * (len(clear) == 1)} less, corrected for their number."
    furthest = "No difference shown, the furthest: " if len(asked) > 1 else "No difference shown: "
    return words if row in clear else f"{furthest}{words}", _joined(count, _number(pairs), _holds(row))


def _width_of_objectives(ask: findings.Ask, asks: str) -> str:
    """Return the sentence on the objective that differs most from the study's own in correct ways to solve a problem;
    empty if they were not counted."""
    rows = [row for row in ask("report_objectives").to_pylist() if row["metric"].startswith("right ways among")]
    pairs = [row | {"other": row["objective"]} for row in rows if row["over_low"] is not None]
    if not pairs:
        return ""
    row = max(_named(pairs, asks), key=lambda one: abs(one["over_baseline"]))
    clear = findings.excludes_zero(row, "over") and not findings.corrected_away(row)
    than = "more" if row["over_baseline"] >= 0 else "fewer"
    low, high = (minus(f"{row[f'over_{end}']:+.2f}") for end in ("low", "high"))
    words = (
        f"{row['objective']} finds {abs(row['over_baseline']):.2f} {than} correct ways among 8"
        f" rollouts than the study's own objective (95 % interval {low} to {high})."
    )
    return words if clear else f"No difference of width shown: {words}"


def _of_search(levels: Sequence[findings.Row], pairs: Sequence[findings.Row], asks: str) -> tuple[str, str]:
    methods = [row for row in levels if not row["label"].endswith("one rollout")]
    if not pairs:
        top = max(methods, key=lambda one: one["after_rate"])
        return f"{top['label']} solves most: {percent(top['after_rate'])}.", _number(methods)
    best = max(pairs, key=lambda one: one["gain"])
    row = max(_named(pairs, asks), key=lambda one: one["gain"])
    on = f" on {row['arm']}" if len({one["arm"] for one in levels}) > 1 else ""
    clear = [one for one in pairs if findings.excludes_zero(one, "gain") and not findings.corrected_away(one)]
    search = "Search" if row in clear else "No difference shown: search"
    more = sum(one["gain"] > 0 for one in clear)
    chosen = ""
    if len(pairs) > 1:
        top = "It is" if row is best else f"{best['other']} ({_points(best['gain'])}) is"
        chosen = f"{top} the best of {len(pairs)} methods, of which {more or 'none'} solve{'s' * (more == 1)} more."
    verdict = _sentence(row, f"{search} by {row['other']}{on}", "solves", "one rollout")
    budget = f"Within {row['budget']:,} tokens a problem."
    return verdict, _joined(chosen, budget, _number(methods), _holds(row))


def _detectable(row: findings.Row) -> str:
    least = row["detectable_gain"]
    if least is None or least > 1:
        return "This study is too small to find any difference."
    return f"A difference of {_points(least)} would have been found."


def _holds(row: findings.Row) -> str:
    return f"This holds for {row['holds_for']}." if row.get("holds_for") else ""


def _number(rows: Sequence[findings.Row]) -> str:
    found = max((row["n"] for row in rows if row["n"]), default=0)
    return f"{found} held-out problems." if found else ""


def _joined(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _lengths(ask: findings.Ask, inputs: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return the mean length of a completion by objective, of a study that compares objectives, otherwise by arm."""
    if "objectives" in inputs:
        rows = [row for row in ask("report_objectives").to_pylist() if row["metric"] == "length_mean"]
        several = len({row["arm"] for row in rows}) > 1
        known = [(row, row["objective"].replace("as the study has it", "own objective"), row["after"]) for row in rows]
        return tuple(
            (f"{row['arm']} · {name}" if several else name, f"{length:,.0f}") for row, name, length in known if length
        )
    rows = [row for row in ask("report_tokens").to_pylist() if row["source"] == "all"] if "tokens" in inputs else []
    last = {row["arm"]: row["tokens_per_rollout"] for row in sorted(rows, key=lambda row: row["step"])}
    return tuple((arm, f"{length:,.0f}") for arm, length in last.items() if length)


def _tiles(ask: findings.Ask, form: findings.Form, inputs: Collection[str]) -> list[Tile]:
    arms: dict[str, findings.Row] = {}
    for row in ask("report_summary").to_pylist():
        arms.setdefault(row["arm"], row)  # of each arm its first seed
    tests = [row for row in ask("report_band_tests").to_pylist() if row["metric"] == "ratio"]
    costs = ask("report_token_ratios").to_pylist() if "tokens" in inputs else []
    ends = {
        arm: max((row[step] for row in costs for name, step in ENDS if row[name] == arm), default=0) for arm in arms
    }
    costs = [row for row in costs if all(ends.get(row[name]) == row[step] for name, step in ENDS)]

    def tile(title: str, of: Callable[[findings.Row], str | None], words: str = "") -> Tile:
        return Tile(title, tuple((arm, text) for arm, row in arms.items() if (text := of(row)) is not None), words)

    def fault(row: findings.Row) -> float:
        return max(row[name] or 0.0 for name in ("no_answer", "invalid_tags", "truncated"))

    in_form = not any(form.mute(arm) for arm in arms) and max(map(fault, arms.values()), default=0.0) < findings.UNLIKE
    tiles = [
        tile(
            "Signal: problems with a gradient",
            lambda row: percent(row["variance"] / row["problems"]) if row["problems"] else None,
            _differ(tests, ("estimate", "low", "high"), "has more", 1),
        ),
        tile(
            "Width: distance of traces before training",
            lambda row: number(width) if (width := row["diversity_before"]) is not None else None,
            _wider(ask),
        ),
        tile(
            "Cost: tokens per correct answer",
            lambda row: f"{cost:,.0f}" if (cost := row["tokens_per_correct"]) and "tokens" in inputs else None,
            _differ(costs, ("cost_ratio", "cost_ratio_low", "cost_ratio_high"), "costs more", 1),
        ),
        Tile(f"Length: tokens per completion{' in training' if 'objectives' in inputs else ''}", _lengths(ask, inputs)),
        tile(
            "Form: no answer, no tags or cut off",
            lambda row: percent(fault(row)),
            "answers are in form" if in_form else "",
        ),
    ]
    return [one for one in tiles if one.values]


def _wider(ask: findings.Ask) -> str:
    """Return which of two arms has the more diverse traces before training."""
    at_start = {"metric": "diversity", "basis": "equal_n", "step": 0, "other_step": 0}
    apart = [row for row in ask("report_diversity").to_pylist() if at_start.items() <= row.items()]
    return _differ(apart, ("difference", "difference_low", "difference_high"), "is wider", 0)


def _differ(rows: Sequence[findings.Row], names: tuple[str, str, str], word: str, even: float) -> str:
    """Return the conclusion about the difference of two arms. even: the value without a difference."""
    known = [row for row in rows if row[names[1]] is not None and row["arm"] != row["other"]]
    if len(known) != 1:
        return ""
    (row,) = known
    value, low, high = (row[name] for name in names)
    if low <= even <= high or findings.corrected_away(row):
        return NOT_SHOWN
    return f"{row['arm'] if value > even else row['other']} {word}"
