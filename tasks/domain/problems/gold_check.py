r"""Checks of golds (correct answers) and problem texts. A PoolPolicy decides which findings exclude a problem."""

import contextlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.domain.grading.formulas import number
from tasks.domain.grading.grading import Verdict
from tasks.domain.grading.reading import is_placeholder
from tasks.domain.grading.shapes import Shape, shape
from tasks.domain.grading.texts import repaired
from tasks.domain.scaffolds import BARE, MATH

#: Grades (answer form, answer, gold, answer kind) tuples; returns their verdicts in order.
Grade = Callable[[Sequence[tuple[str, str, str, str]]], list[Verdict]]
MARKUP_KEPT = re.compile(r"\[asy\]|\\begin\{(?:tikzpicture|asy|tabular|array)|\|.*\|.*\|")

#: Code → its meaning, for reports.
CODES = {
    "gold_fails": "the gold is not graded as correct against itself",
    "perturbed_gold_passes": "a wrong answer made from the gold is graded as correct",
    "gold_no_answer": "the gold is no answer: a missing value, JSON, a proof, or LaTeX with a control character",
    "gold_backslash": "the gold may be LaTeX that lost its backslash: right answers would be graded as wrong",
    "gold_only_text": "a part of the gold cannot be parsed: only the same spelling will match",
    "gold_unbalanced": "brackets or braces of the gold do not match",
    "gold_markup": "the gold carries stray markup (dollar signs, full stop, spacing commands)",
    "gold_multiplicity": "the gold lists a value twice: multiplicity counts",
    "gold_order": "a list without brackets, and the text asks for an order",
    "gold_unit": "the gold carries a unit or a percent sign",
    "gold_decimal": "the gold is a decimal that may be rounded",
    "gold_separator": "a comma in the gold may separate thousands, decimals or values",
    "gold_named": "the gold is an equation: its name is part of it",
    "missing_figure": "the text refers to a figure that it does not contain",
    "dangling_reference": "the text refers to something outside it",
    "proof_wording": "the text asks for a proof or an explanation",
    "markup": "markup is left in the text",
    "duplicate": "the same text again",
    "duplicate_with_other_gold": "the same text with another gold",
    "evaluation_problem": "a problem of a set that must not be trained on",
    "near_evaluation_problem": "nearly a problem of a set that must not be trained on",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding. severity: `exclude` (the problem cannot be graded) or `warn`. forced: exclude under every policy."""

    code: str
    severity: str
    detail: str
    forced: bool = False


_FIGURE = re.compile(
    r"\b(?:(?:in|see|from) the (?:figure|diagram|picture|graph|sketch)|(?:figure|diagram|picture|graph) (?:below"
    r"|above|shows|at right|shown)"
    r"|as (?:is )?shown|(?:is|are) shown|shown (?:below|above|here|in)|pictured|the following (?:figure|diagram)"
    r"|illustrated (?:below|above))\b",
    re.I,
)
_DANGLING = re.compile(
    r"\bpart \(?(?:[a-d]|i{1,3}|iv|\d)\)|\bTNY?WR\b|\bproblem \d+\b|\bthe (?:previous|preceding) (?:problem"
    r"|question|part)"
    r"|\bquestion \d+\b|\b(?:above|previous) (?:problem|result|question|theorem|lemma)\b|\breceive from position\b"
    r"|\bin the (?:article|passage|text above)\b|\bas defined (?:above|earlier)\b|\bTheorem \d+|\bLemma \d+",
    re.I,
)
_PROOF = re.compile(r"\b(?:prove|show that|justify|explain (?:how|why|your)|proof)\b", re.I)
_MARKUP = re.compile(
    r"<br ?/?>|</?[a-z]+>|&(?:nbsp|lt|gt|amp|quot);|\\(?:section|subsection|includegraphics|hspace|vspace|newline"
    r"|noindent|textit|textbf|emph|item|footnote|cite|ref|label)\b"
    r"|\\begin\{(?:itemize|enumerate|center|figure)\}|!\[|https?://|(?<!\\)\\&(?= ?[=<>])"
    r"|\*\*[A-Za-z]",
    re.I,
)
_ORDERED = re.compile(
    r"\b(?:respectively|in (?:this|that|increasing|decreasing|ascending|descending) order|ordered (?:pair|triple"
    r"|list)s?|in order)\b",
    re.I,
)


def findings_of_text(problem: str) -> list[Finding]:
    """Check a problem's text.

    >>> [f.code for f in findings_of_text("As shown in the diagram, prove that part (b) holds.<br>")]
    ['missing_figure', 'dangling_reference', 'proof_wording', 'markup']
    """
    found = []
    if (match := _FIGURE.search(problem)) and not MARKUP_KEPT.search(problem):
        found.append(Finding("missing_figure", "warn", _around(problem, match)))
    for code, pattern in (("dangling_reference", _DANGLING), ("proof_wording", _PROOF), ("markup", _MARKUP)):
        if match := pattern.search(problem):
            found.append(Finding(code, "warn", _around(problem, match)))
    return found


def _around(text: str, match: re.Match[str]) -> str:
    start, end = max(0, match.start() - 30), match.end() + 30
    return "…" + re.sub(r"\s+", " ", text[start:end]) + "…"


def findings_of_gold(golds: Sequence[tuple[str, str, str]], grade: Grade) -> list[list[Finding]]:
    """Check each (gold, gold as published, problem). Grade every gold against itself and against wrong answers."""
    probes: list[tuple[int, str, str, str, str]] = []
    for i, (gold, raw, _) in enumerate(golds):
        for form in BARE:
            probes += [(i, "self", form, gold, gold), (i, "self", form, raw, gold)]
            probes += [(i, "wrong", form, wrong, gold) for wrong in perturbed(gold)]
        probes += [(i, "parse", "tag", f"{term}+0", term) for term in _algebraic_terms(shape(gold))]
    verdicts = grade([(*probe[2:], MATH) for probe in probes])
    found: list[dict[str, Finding]] = [{f.code: f for f in _static(*gold)} for gold in golds]
    for (i, purpose, _, answer, _), verdict in zip(probes, verdicts, strict=True):
        if verdict.correct == (purpose == "wrong"):
            code, severity, detail = {
                "self": ("gold_fails", "exclude", f"{answer!r:.80}: {verdict.verdict}, {verdict.reason}"),
                "wrong": ("perturbed_gold_passes", "exclude", f"{answer!r:.80} passes"),
                "parse": ("gold_only_text", "warn", f"{answer[:-2]!r:.80}: {verdict.reason}"),
            }[purpose]
            found[i].setdefault(code, Finding(code, severity, detail))
    return [list(by_code.values()) for by_code in found]


def findings_of_kind(golds: Sequence[str], kind: str, grade: Grade) -> list[list[Finding]]:
    """Check golds that are not mathematics. Each gold must be correct against itself in every answer form."""
    verdicts = grade([(form, gold, gold, kind) for gold in golds for form in BARE])
    found: list[list[Finding]] = [[] for _ in golds]
    for place, verdict in enumerate(verdicts):
        gold, own = golds[place // len(BARE)], found[place // len(BARE)]
        if not verdict.correct and not own:
            own.append(Finding("gold_fails", "exclude", f"{gold!r:.80} as {kind}: {verdict.verdict}, {verdict.reason}"))
    return found


def perturbed(gold: str) -> list[str]:
    r"""Return wrong answers made from a gold: off by one, an element lost or changed, an interval's end closed.

    >>> perturbed("7"), perturbed("1, 3"), perturbed("[0,1)")
    (['8'], ['1', '1, 4'], ['(0,1)'])
    """
    found = shape(gold)
    items = list(found.items)
    texts = [item.text for item in items]
    match found.kind:
        case "list" | "choice" | "set" if len(items) > 1:
            parts = (", ".join(texts[:-1]), ", ".join([*texts[:-1], _off(items[-1])]))
            return [rf"\{{{part}\}}" if found.kind == "set" else part for part in parts]
        case "tuple":
            return [f"({', '.join([*texts[:-1], _off(items[-1])])})"]
        case "interval" if gold.strip()[:1] in ("(", "["):
            return [f"{'[' if found.marks[0] == '(' else '('}{gold.strip()[1:]}"]
        case "union":
            return [texts[0]]
        case _:
            return [_off(found)]


def _off(term: Shape) -> str:
    value = number(term.text)
    if value is not None and value.unit is None:
        return str(value.value + 1)
    if value is not None:
        return str(value.value + 17)
    if term.kind == "relation":
        return term.text[: len(term.text) - len(term.items[-1].text)] + _off(term.items[-1])
    if term.kind == "tuple":
        return f"({', '.join([*(i.text for i in term.items[:-1]), _off(term.items[-1])])})"
    return f"{term.text}+1"


def _algebraic_terms(found: Shape) -> list[str]:
    """Return the terms that only algebra can recognise in another spelling, without the left side of an equation."""
    if found.kind == "scalar":
        words = re.search(
            r"\\(?:text|mathrm|mbox)|[A-Za-z]{4,}", re.sub(r"\\(?!text|mathrm|mbox)[A-Za-z]+", "", found.text)
        )
        plain = number(found.text) is not None or r"\infty" in found.text
        return [] if plain or words else [found.text]
    items = found.items[1:] if found.kind == "relation" and set(found.marks) == {"="} else found.items
    return [term for item in items for term in _algebraic_terms(item)]


_MISSING = re.compile(
    r"(?:undefined value|missing|not ?found|no ?answer|not (?:given|available|applicable)|prove(?:d|n)?|q\.?e\.?d\.?"
    r"|todo|(?:see |the )?(?:proof|solution|explanation|above|below)(?: (?:above|below|omitted))?)",
    re.I,
)
#: LaTeX commands whose backslash JSON read as an escape (`\\f`, `\\t`, `\\b`, `\\r`, `\\n`, `\\v`).
_LOST_BACKSLASH = re.compile(
    "\f(?=rac|orall|box)|\t(?=ext|imes|heta|an|au|o |frac|riangle)|\b(?=inom|eta|ar|oxed|egin|ig|f|ullet)"
    "|\r(?=ight|ho|angle|ceil|floor|m)|\n(?=eq|e |u(?![a-z])|abla|ot)|\v(?=ec|arphi|ert|ee)"
)

#: Commands without their backslash (`frac{1}{2}`), or also without the first letter (`rac{1}{2}`).
_BARE_COMMAND = re.compile(r"(?<![\\A-Za-z])(?:[cdt]?frac|rac|[dt]?binom|inom|text|ext|mathrm|boxed|oxed)\{")


def why_no_answer(gold: str) -> str:
    r"""Return why a published gold cannot be an answer; empty if it can be one.

    >>> why_no_answer("nan"), why_no_answer('["2", "9"]'), why_no_answer("\frac12"), why_no_answer("[2, 9]")
    ('stands in place of an answer', 'is JSON and no answer', 'a backslash was lost before rac12', '')
    """
    if is_placeholder(gold) or _MISSING.fullmatch(gold.strip(" .$\n")):
        return "stands in place of an answer"
    if lost := _LOST_BACKSLASH.search(gold):
        return f"a backslash was lost before {gold[lost.end() : lost.end() + 6].strip()}"
    with contextlib.suppress(ValueError, RecursionError):
        held = json.loads(gold)
        if isinstance(held, dict | str) or (
            isinstance(held, list) and any(not isinstance(h, int | float) for h in held)
        ):
            return "is JSON and no answer"
    return ""


def _static(gold: str, raw: str, problem: str) -> list[Finding]:
    form, found, bare = shape(gold), list[Finding](), raw.strip()
    if reason := why_no_answer(raw):
        found.append(Finding("gold_no_answer", "exclude", f"{raw!r:.60}: {reason}"))
    terms = [number(i.text) for i in form.items] if form.items else [number(gold)]
    kinds, is_list, ordered = {i.kind for i in form.items}, form.kind == "list", _ORDERED.search(problem)
    warnings = {
        "gold_backslash": _BARE_COMMAND.search(raw),
        "gold_unbalanced": repaired(gold) != gold,
        "gold_markup": "$" in bare.strip("$") or bare.endswith((".", "$", ",")) or bare.startswith(("$", r"\quad")),
        "gold_multiplicity": is_list and len({i.text for i in form.items}) < len(form.items),
        "gold_order": is_list and ordered and "tuple" not in kinds,
        "gold_unit": any(n is not None and n.unit for n in terms) or r"^{\circ}" in gold or "%" in gold,
        "gold_decimal": any(n is not None and n.place is not None and n.value.denominator != 1 for n in terms),
        "gold_separator": re.fullmatch(r"[\s$]*-?\d+(?:(?:,|\{,\})\d+)+[\s$]*", raw),
        "gold_named": "relation" in {form.kind, *kinds},
    }
    detail = {"gold_order": f"{gold[:40]}: {_around(problem, ordered)}" if ordered else ""}
    return found + [Finding(code, "warn", detail.get(code, raw[:80])) for code, there in warnings.items() if there]
