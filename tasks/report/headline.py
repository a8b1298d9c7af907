"""The first screen of a study: a sentence that answers its question, for which population it holds, a chart and tiles.

If no difference is found, the verdict begins with one of three words: `Undecided` if the interval that decides contains
0, `No difference` if a test shows that the difference is within MARGIN, and `Not compared`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from storage.reading.figures import answer_figure, signed_end
from tasks.domain.gate import SHARES
from tasks.domain.statistics.means import MARGIN
from tasks.report import findings
from tasks.report.tables import percent

#: Columns of the two policies of a comparison.
ENDS = (("arm", "step"), ("other", "other_step"))
#: Accuracy below which a gain within MARGIN is still a large part of what an arm solves.
FEW = 5 * MARGIN
#: Order of the verdicts on pairs of arms. The study has the first one that occurs.
VERDICT_ORDER = ("different", "alike", "undecided", "withheld", "unknown")
#: The most differences of objectives that a sentence lists.
LISTED = 3
OWN = "the study's own objective"
#: Words of a fault of form → what at least half of an arm's rollouts must do, so that arms are compared.
NEEDED = {
    SHARES["no_answer"]: "answer",
    SHARES["invalid_tags"]: "have valid tags",
    SHARES["truncated"]: "end before max_tokens",
}
#: Frequent findings of the audit: code → words.
FINDINGS = {"single_seed": "one training seed only", "form": "answers out of form", "truncation": "completions cut off"}
FINDINGS |= {"gate": "the form gate was missed", "near_duplicate": "near-duplicates of held-out problems"}


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure for each arm, objective or method. values: pairs of name and figure. words: a sentence on their
    difference, or on what the figure measures."""

    title: str
    values: tuple[tuple[str, str], ...]
    words: str = ""


@dataclass(frozen=True, slots=True)
class Headline:
    """The text of a first screen. verdict: the answer in one sentence. holds: the smallest difference that the study
    could find, and the population that the answer holds for. audit: a sentence on the audit's findings; empty if there
    are none. withheld: labels of differences that the chart leaves out because their ends are not compared."""

    verdict: str
    holds: str
    audit: str
    tiles: tuple[Tile, ...]
    withheld: tuple[str, ...] = ()


def headline(ask: findings.Ask, inputs: Collection[str], looks: int = 1, *, study: str, asks: str = "") -> Headline:
    """Return the answer to the question of a study.

    The answer is about objectives or a search if the study has them, about width if the question is, and otherwise
    about the arms (see `answer_figure`). If the question names objectives or search methods, those come first. inputs:
    names of the report's inputs. study: its name. asks: its question. looks: see `findings.answer`.
    """
    form, figure = findings.Form(ask("report_form").to_pylist()), answer_figure(inputs, asks)
    rows = ask(figure.query).to_pylist()
    levels = [row for row in rows if row["row"] == "level"]
    differences = [row for row in rows if row["row"] == "difference"]
    pairs = [row for row in differences if row.get("gain_low") is not None]
    withheld: list[str] = []
    if figure.name == "answer_objectives":
        verdict, holds = _of_objectives(levels, pairs, asks)
    elif figure.name == "answer_ways":
        verdict, holds = _of_ways(ask, levels, differences, asks)
    elif figure.name == "answer_search":
        verdict, holds = _of_search(levels, pairs, asks)
    else:
        gate = findings.broken_gate(ask)
        withheld = [row["label"] for row in differences if findings.withheld(row, form, gate, form.compared)]
        if figure.name == "answer_width":
            verdict, holds = _of_widths(ask, form, levels, differences, study)
        else:
            verdict, holds = _of_gains(ask, form, levels, looks, study) or _of_levels(ask, form, levels, pairs, study)
    rates = [row[f"{end}_rate"] for row in levels for end in ("before", "after") if row.get(f"{end}_rate") is not None]
    of_form = verdict.startswith("Not compared: of")
    if rates and not any(rates):
        withheld = [row["label"] for row in differences]
        if not of_form:
            verdict, holds = "Not compared: no held-out rollout is correct.", _number(levels)
    if not of_form:
        holds = _joined(holds, *findings.weak_trainings(ask))
    return Headline(verdict, holds, _audit(ask), tuple(_tiles(ask, form, inputs, levels)), tuple(withheld))


def _audit(ask: findings.Ask) -> str:
    codes = Counter(ask("report_audit").to_pydict().get("code", ()))
    if not codes:
        return ""
    found = f"{codes.total()} finding{'' if codes.total() == 1 else 's'}"
    arms = len({row["arm"] for row in ask("report_summary").to_pylist()})
    kinds = []
    for code, times in codes.items():
        of_arms = f"{'both' if times == arms == 2 else times} arms" if code == "single_seed" else f"{times} times"
        kinds.append(FINDINGS.get(code, code.replace("_", " ")) + (f" ({of_arms})" if times > 1 else ""))
    return f"The audit has {found} about the design: {findings.listed(kinds)}."


# ---- numbers and names in a sentence


def _points(share: float) -> str:
    """
    >>> _points(0.338), _points(0.05), _points(0.0104), _points(0.0125)
    ('33.8 points', '5 points', '1 point', '1.3 points')
    """
    text = _tenths(abs(100 * share)).removesuffix(".0")
    return f"{text} point{'' if text == '1' else 's'}"


def _tenths(value: float) -> str:
    """Return one digit after the point. Halves are rounded up, as a reader would round the two digits of the chart."""
    return f"{value + 1e-9:.1f}"


def _ends(row: findings.Row, sign: int = 1) -> str:
    low, high = sorted(100 * sign * row[f"gain_{end}"] for end in ("low", "high"))
    return f"(95 % interval {signed_end(low)} to {signed_end(high)})"


def _named(pairs: Sequence[findings.Row], asks: str) -> Sequence[findings.Row]:
    """Return the pairs whose `other` the question names, or all pairs if it names none."""

    def words(text: str) -> str:
        return f" {' '.join(re.findall(r'[a-z0-9]+', text.lower().replace('_', ' ')))} "

    return [row for row in pairs if words(row["other"].partition(":")[0]) in words(asks)] or pairs


def _sentence(row: findings.Row, one: str, verb: str, other: str, *, turned: bool = False) -> str:
    """Return the sentence on a difference (columns gain, gain_low, gain_high). turned: name the better arm first."""
    sign = -1 if turned and row["gain"] < 0 else 1
    first, second = (one, other)[::sign]
    than = "more" if sign * row["gain"] >= 0 else "less"
    return f"{first} {verb} {_points(row['gain'])} {than} than {second} {_ends(row, sign=sign)}."


def _clear(row: findings.Row, name: str = "gain") -> bool:
    return findings.excludes_zero(row, name) and not findings.corrected_away(row)


def _decided(pairs: Sequence[bool], what: str) -> str:
    """Return how many of several comparisons are decided; empty for a single one."""
    if len(pairs) < 2:
        return ""
    counted = f"{sum(pairs)} of the {len(pairs)}" if any(pairs) else f"None of the {len(pairs)}"
    verb = "are" if sum(pairs) > 1 else "is"
    return f"{counted} {what} {verb} decided."


def _not_compared(
    form: findings.Form,
    levels: Sequence[findings.Row],
    pairs: Sequence[findings.Row],
    sampled: str,
    why: str,
    study: str,
) -> tuple[str, str]:
    """Return the headline for arms that are not compared. The headline names all arms that break the form of their
    answers, or else says why the first two are not compared."""
    arms = [arm for arm in form.arms if any(arm in (row["arm"], row["other"]) for row in pairs)]
    where, faults = form.broken(arms, sampled)
    if not faults:
        return (
            f"Not compared: {pairs[0]['arm']} and {pairs[0]['other']} differ in more than their scaffolds.",
            f"{why}.",
        )
    words = next(iter(faults.values())).words
    sizes = sorted({fault.rollouts for fault in faults.values()})
    of = " to ".join(f"{size:,}" for size in sizes[:: max(1, len(sizes) - 1)])
    shares = findings.listed(f"{percent(fault.share)} of {arm}" for arm, fault in faults.items())
    verdict = f"Not compared: of {of} {where} rollouts{' each' if len(faults) > 1 else ''}, {shares} {words}."
    cut = ""
    if words == SHARES["no_answer"]:
        ends = (f"{one.truncated} of {arm}'s {one.share * one.rollouts:.0f}" for arm, one in faults.items())
        cut = f"Of those without an answer, {findings.listed(ends)} were cut off at max_tokens."
    rule = f"Arms are compared only if at least half of the rollouts {NEEDED[words]}."
    look = f"To read completions: 'varband store show {study} --completions 3 --failed'."
    return verdict, _joined(cut, rule, _number(levels), look)


# ---- arms


def _of_gains(
    ask: findings.Ask, form: findings.Form, levels: Sequence[findings.Row], looks: int, study: str
) -> tuple[str, str] | None:
    """Return the verdict on the two trained arms that differ most; None without two trained arms."""
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
        return _not_compared(form, levels, [one for _, one in pairs], findings.TRAINED, why, study)
    if verdict == "unknown":
        return f"Not compared: the difference of {arms} has no interval.", f"{why or 'No interval'}."
    row |= {"gain": row["more_gain"], "gain_low": row["more_gain_low"], "gain_high": row["more_gain_high"]}
    more = _sentence(row, row["arm"], "gained", row["other"], turned=True)
    solved = [level[f"{end}_rate"] or 0.0 for level in levels for end in ("before", "after")]
    few = f"All solve less than {percent(FEW)}: {_points(MARGIN)} are much." if max(solved, default=1.0) < FEW else ""
    decided = [one in ("different", "alike") for (one, _), _ in pairs]
    several = _decided(decided, "pairs of arms") if any(decided) else ""
    known = [one for (found, _), one in pairs if found not in ("withheld", "unknown")]
    shown = few if verdict == "alike" else _detectable(known)
    holds = _joined(several, shown, _number([row]), _holds(row))
    alike = f"No difference: {arms} gain the same to within {_points(MARGIN)} (equivalence test at 5 %)."
    open_ = f"Undecided for all {len(pairs)} pairs of arms; the largest difference: {more}"
    undecided = open_ if len(pairs) > 1 else f"Undecided: {more}"
    return {"different": more, "alike": alike, "undecided": undecided}[verdict], holds


def _of_levels(
    ask: findings.Ask, form: findings.Form, levels: Sequence[findings.Row], pairs: Sequence[findings.Row], study: str
) -> tuple[str, str]:
    """Return the headline of a study with one trained arm, or with none."""
    if trained := [row for row in levels if row["gain"] is not None and row["gain_low"] is not None]:
        row = max(trained, key=lambda one: abs(one["gain"]))
        verb = "gained" if row["gain"] > 0 else "lost"
        words = f"{row['arm']} {verb} {_points(row['gain'])} {_ends(row)}."
        return words if findings.excludes_zero(row, "gain") else f"Undecided: {words}", _holds(row)
    number_of = _joined("Nothing was trained.", _number(levels))
    if not pairs:
        return _untrained(ask, levels), number_of
    why = [form.withheld((one["arm"], one["other"]), findings.START) for one in pairs]
    sound = [one for one, reason in zip(pairs, why, strict=True) if not reason]
    if not sound:
        return _not_compared(form, levels, pairs, findings.START, why[0] or "", study)
    return _solves_more(sound), _joined(_detectable(sound), number_of)


def _solves_more(pairs: Sequence[findings.Row]) -> str:
    """Return the sentence on the two untrained arms that differ most in accuracy."""
    row = max(pairs, key=lambda one: (findings.excludes_zero(one, "gain"), abs(one["gain"])))
    words = _sentence(row, row["arm"], "solves", row["other"], turned=True)
    return words if findings.excludes_zero(row, "gain") else f"Undecided: {words}"


def _untrained(ask: findings.Ask, arms: Sequence[findings.Row]) -> str:
    """Return the accuracy of arms that are not compared. For a single arm, add how many problems have a gradient."""
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


def _of_widths(
    ask: findings.Ask,
    form: findings.Form,
    levels: Sequence[findings.Row],
    differences: Sequence[findings.Row],
    study: str,
) -> tuple[str, str]:
    """Return which of several untrained arms is wider, and then their accuracy."""
    number_of = _joined("Nothing was trained.", _number(levels))
    if not differences:
        widths = (f"{row['arm']} has the width {row['after_width']:.3f}" for row in levels)
        return f"{findings.listed(widths)}." if levels else "No width was measured.", number_of
    why = [form.withheld((one["arm"], one["other"]), findings.START) for one in differences]
    sound = [one for one, reason in zip(differences, why, strict=True) if not reason]
    if not sound:
        return _not_compared(form, levels, differences, findings.START, why[0] or "", study)
    row = max(sound, key=lambda one: (findings.excludes_zero(one, "difference"), abs(one["difference"])))
    low, high = (signed_end(row[f"difference_{end}"], 3) for end in ("low", "high"))
    verdict = f"{row['arm']} is wider than {row['other']} by {row['difference']:.3f} (95 % interval {low} to {high})."
    verdict = verdict if findings.excludes_zero(row, "difference") else f"Undecided: {verdict}"
    accuracy = [row for row in ask("report_answer_gain").to_pylist() if row["row"] == "difference"]
    known = [row for row in accuracy if row["gain_low"] is not None]
    solved = f"Accuracy: {_solves_more(known).replace('Undecided: ', 'undecided, ')}" if known else ""
    decided = [findings.excludes_zero(one, "difference") for one in sound]
    found = _detectable(sound, "difference", digits=3)
    return verdict, _joined(_decided(decided, "pairs of arms"), found, solved, number_of)


# ---- objectives and searches


def _of_objectives(levels: Sequence[findings.Row], pairs: Sequence[findings.Row], asks: str) -> tuple[str, str]:
    """Return the verdict on the objectives that gain more or less than the study's own. Those that the question names
    come first."""
    if not pairs:
        return "Not compared: no objective has an interval.", _number(levels)
    asked, on = _named(pairs, asks), len({one["arm"] for one in pairs}) > 1
    rest = [row for row in pairs if row not in asked]

    def called(row: findings.Row) -> str:
        return row["other"] + (f" on {row['arm']}" if on else "")

    def moved(row: findings.Row) -> str:
        return f"{_points(row['gain'])} {'more' if row['gain'] >= 0 else 'less'}"

    clear = [row for row in pairs if _clear(row)]
    holds = _joined(_number(pairs), _holds(pairs[0]))
    also = [f"Also {_sentence(row, called(row), 'gained', OWN)}" for row in rest if row in clear]
    decided = _decided([row in clear for row in pairs], "objectives")
    others = _joined(*also, decided, _detectable(pairs, by="objective"), holds)
    if all(abs(one[f"gain_{end}"]) < MARGIN for one in pairs for end in ("low", "high")):
        who = f"all {len(pairs)} objectives gain" if len(pairs) > 1 else f"{called(pairs[0])} gains"
        alike = f"No difference: {who} the same as {OWN} to within {_points(MARGIN)}."
        return alike, holds
    if first := [row for row in clear if row in asked]:
        row = max(first, key=lambda one: abs(one["gain"]))
        return _sentence(row, called(row), "gained", OWN), others
    if not clear and 1 < len(pairs) <= LISTED:
        first, *more = asked
        listed = findings.listed(
            [f"{called(first)} gained {moved(first)}", *(f"{called(row)} {moved(row)}" for row in more)]
        )
        beside = f"; also {findings.listed(f'{called(row)} {moved(row)}' for row in rest)}" if rest else ""
        return f"Undecided: {listed} than {OWN}{beside}; all intervals contain 0.", _joined(
            _detectable(pairs, by="objective"), holds
        )
    row = max(asked, key=lambda one: abs(one["gain"]))
    words = _sentence(row, called(row), "gained", OWN)
    return f"Undecided{', the furthest' if len(asked) > 1 else ''}: {words}", others


def _of_ways(
    ask: findings.Ask, levels: Sequence[findings.Row], differences: Sequence[findings.Row], asks: str
) -> tuple[str, str]:
    """Return the verdict on the objective that differs most from the study's own in correct ways to solve a problem,
    and after it the verdict on accuracy."""
    rows = ask("report_answer_objectives").to_pylist()
    known = [row for row in rows if row["row"] == "difference" and row["gain_low"] is not None]
    solved = _of_objectives(levels, known, asks)[0].replace("Undecided: ", "undecided, ")
    pairs = [row for row in differences if row["difference_low"] is not None]
    if not pairs:
        return "Not compared: the correct ways of no objective have an interval.", f"Accuracy: {solved}"
    row = max(_named(pairs, asks), key=lambda one: (_clear(one, "difference"), abs(one["difference"])))
    than = "more" if row["difference"] >= 0 else "fewer"
    low, high = (signed_end(row[f"difference_{end}"], 2) for end in ("low", "high"))
    words = (
        f"{row['other']} finds {abs(row['difference']):.2f} {than} correct ways among 8 rollouts than {OWN}"
        f" (95 % interval {low} to {high})."
    )
    verdict = words if _clear(row, "difference") else f"Undecided: {words}"
    found = _detectable(pairs, "difference", by="objective", digits=2)
    return verdict, _joined(found, f"Accuracy: {solved}", _number(pairs), _holds(row))


def _of_search(levels: Sequence[findings.Row], pairs: Sequence[findings.Row], asks: str) -> tuple[str, str]:
    """Return the verdict on a method against a single rollout, with the tokens of both; and after it the rollouts
    that the method drew, the tokens that it was allowed, and the verdict on the two best methods."""
    methods = [row for row in levels if row["method"] != "first"]
    over = [row for row in pairs if row["against"] == "first"]
    if not over:
        top = max(methods, key=lambda one: one["after_rate"])
        return f"Not compared: {top['label']} solves {percent(top['after_rate'])}.", _number(methods)
    row = max(_named(over, asks), key=lambda one: one["gain"])
    on = f" on {row['arm']}" if len({one["arm"] for one in levels}) > 1 else ""
    spent = {one["method"]: one for one in levels if one["arm"] == row["arm"]}
    used, tokens = spent[row["other"]], [spent[method]["tokens"] for method in (row["other"], "first")]
    cost = f", for {tokens[0]:,.0f} tokens a problem against {tokens[1]:,.0f}."
    words = _sentence(row, f"{row['other']}{on}", "solves", "one rollout").removesuffix(".") + cost
    best = ""
    for two in pairs:
        if two["against"] != "first" and two["arm"] == row["arm"]:
            decided = "" if _clear(two) else "undecided, "
            best = f"The best two: {decided}{_sentence(two, two['other'], 'solves', two['against'])}"
    drew = f"{row['other']} drew {used['rollouts']:.1f}".removesuffix(".0") + " rollouts a problem"
    budget = f"{drew}: {tokens[0]:,.0f} of {row['budget']:,} allowed tokens, prompts included."
    holds = _joined(budget, best, _detectable(pairs), _number(methods), _holds(row))
    return words if _clear(row) else f"Undecided: {words}", holds


def _detectable(pairs: Sequence[findings.Row], name: str = "gain", by: str = "pair", digits: int = 0) -> str:
    """Return which true differences a study of this size finds with a power of 80 %. name: column of the difference.
    by: what each row is of. digits: of the differences; 0 for points."""
    known = [row[f"detectable_{name}"] for row in pairs if row[f"detectable_{name}"] is not None]
    if name == "gain":
        known = [one for one in known if one <= 1]
    if not known:
        return "This study is too small to find any difference."
    least, most = (f"{one:.{digits}f}" if digits else _points(one) for one in (min(known), max(known)))
    size = least if least == most else f"{least.partition(' ')[0]} to {most}, by {by},"
    return f"A true difference of {size} would be found in 4 of 5 such studies."


def _holds(row: findings.Row) -> str:
    return f"This holds for {row['holds_for']}." if row.get("holds_for") else ""


def _number(rows: Sequence[findings.Row]) -> str:
    found = max((row["n"] for row in rows if row["n"]), default=0)
    return f"{found} held-out problems." if found else ""


def _joined(*parts: str) -> str:
    return " ".join(filter(None, parts))


# ---- tiles


def _lengths(ask: findings.Ask, inputs: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return the mean length of a completion, by objective if the study compares objectives, and else by arm."""
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


def _tiles(
    ask: findings.Ask, form: findings.Form, inputs: Collection[str], levels: Sequence[findings.Row]
) -> list[Tile]:
    """Return the tiles. levels: rows of the answer's figure; those of a search have the tokens of each method."""
    arms: dict[str, findings.Row] = {}
    for row in ask("report_summary").to_pylist():
        arms.setdefault(row["arm"], row)  # the first seed of each arm
    tests = [row for row in ask("report_band_tests").to_pylist() if row["metric"] == "ratio"]
    costs = ask("report_token_ratios").to_pylist() if "tokens" in inputs else []
    ends = {
        arm: max((row[step] for row in costs for name, step in ENDS if row[name] == arm), default=0) for arm in arms
    }
    costs = [row for row in costs if all(ends.get(row[name]) == row[step] for name, step in ENDS)]
    # if objectives or searches are compared, these figures are about one policy, which its arm does not identify
    objectives, trained = "objectives" in inputs, not {"objectives", "trainings"}.isdisjoint(inputs)
    spent = tuple((row["label"], f"{row['tokens']:,.0f}") for row in levels if row.get("tokens"))
    start = end = "without search" if spent else ""
    if objectives:
        start = "before training, for every objective"

    def tile(title: str, of: Callable[[findings.Row], str | None], words: str = "", own: bool = False) -> Tile:
        """own: in a study of objectives, the figure is of the study's own."""
        named = {arm: ("own objective" if len(arms) == 1 else f"{arm} · own objective") if own else arm for arm in arms}
        return Tile(
            title, tuple((named[arm], text) for arm, row in arms.items() if (text := of(row)) is not None), words
        )

    widths = {row["arm"]: row["after_width"] for row in levels if "after_width" in row}  # those of the chart
    faults = {arm: fault for arm in arms if (fault := form.worst(arm, form.compared)) is not None}
    in_form = not any(form.missing_parts(arm) for arm in arms) and all(
        one.share < findings.UNLIKE for one in faults.values()
    )
    of_form = ""
    if faults:
        sizes = findings.listed(f"{one.rollouts:,}" for one in faults.values())
        state = "; answers are in form" if in_form else f" {findings.listed(one.words for one in faults.values())}"
        which = "held-out rollouts without search" if spent else "held-out rollouts"
        of_form = f"of {sizes} {which}{' each' if len(faults) > 1 else ''}{state}"
    tiles = [
        tile(
            "Signal: problems with a gradient",
            lambda row: percent(row["variance"] / row["problems"]) if row["problems"] else None,
            start or _differ(tests, ("estimate", "low", "high"), ("has more", "has most"), 1),
        ),
        tile(
            f"Width: distance of traces{' before training' if trained and not objectives else ''}",
            lambda row: None if (at := widths.get(row["arm"], row["diversity_before"])) is None else f"{at:.3f}",
            start or _wider(ask),
        ),
        Tile("Cost: tokens a problem, prompts included", spent)
        if spent
        else tile(
            "Cost: tokens per correct answer",
            lambda row: f"{cost:,.0f}" if (cost := row["tokens_per_correct"]) and "tokens" in inputs else None,
            end or _differ(costs, ("cost_ratio", "cost_ratio_low", "cost_ratio_high"), ("costs more", "costs most"), 1),
            own=objectives,
        ),
        Tile(f"Length: tokens per completion{' in training' if objectives else ''}", _lengths(ask, inputs), end),
        tile(
            "Form: no answer, no tags or cut off",
            lambda row: percent(faults[row["arm"]].share) if row["arm"] in faults else None,
            of_form,
            own=objectives,
        ),
    ]
    return [one for one in tiles if one.values]


def _wider(ask: findings.Ask) -> str:
    """Return which arm has the most diverse traces before training."""
    at_start = {"metric": "diversity", "basis": "equal_n", "step": 0, "other_step": 0}
    apart = [row for row in ask("report_diversity").to_pylist() if at_start.items() <= row.items()]
    return _differ(apart, ("difference", "difference_low", "difference_high"), ("is wider", "is widest"), 0)


def _differ(rows: Sequence[findings.Row], names: tuple[str, str, str], words: tuple[str, str], even: float) -> str:
    """Return the conclusion about the differences of arms. names: columns of a difference and its interval. words: for
    the larger one of two arms, and for the largest one of several. even: the value that means no difference."""
    value, low, high = names
    known = [row for row in rows if row[low] is not None and row["arm"] != row["other"]]
    ahead = [
        (row["arm"], row["other"])[:: 1 if row[value] > even else -1]
        for row in known
        if not row[low] <= even <= row[high] and not findings.corrected_away(row)
    ]
    if not known:
        return ""
    if len(known) == 1:
        return f"{ahead[0][0]} {words[0]}" if ahead else f"undecided which {words[0]}"
    first, wins = Counter(one for one, _ in ahead).most_common(1)[0] if ahead else ("", 0)
    if wins == len({row[name] for row in known for name in ("arm", "other")}) - 1:
        return f"{first} {words[1]}"
    if len(ahead) == 1:
        return f"{ahead[0][0]} {words[0]} than {ahead[0][1]}"
    return f"{len(ahead)} of {len(known)} pairs differ" if ahead else "undecided for every pair"
