r"""The grader. Reward, screening, evaluation and regrading all use it.

The grader gets only the final-answer region and the gold. `tasks.domain.grading.comparison` compares the two. Time and
memory are limited for every completion (`tasks.domain.grading.values`).
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from typing import Annotated

from pydantic import BaseModel, StringConstraints, ValidationError

from storage.errors import UserError
from tasks.domain.grading.comparison import (
    LEAST_DIGITS,
    MACHINE_TOLERANCE,
    Comparison,
    Verdict,
    VerdictName,
    bare_words,
    squeeze,
    worded,
)
from tasks.domain.grading.kinds import grade_as
from tasks.domain.grading.reading import EMPTY, MAX_ANSWER_CHARS, MAX_ANSWERS, answer_texts, read
from tasks.domain.grading.shapes import Shape, shape, with_letters_of
from tasks.domain.grading.texts import normalise, repaired, visible, without_struck
from tasks.domain.grading.values import Undecided, start_work
from tasks.domain.ranges import sentences
from tasks.domain.scaffolds import MATH, AnswerForm, Scaffold

BEHAVIOUR = 11
_CONFIG = (BEHAVIOUR, LEAST_DIGITS, str(MACHINE_TOLERANCE), MAX_ANSWER_CHARS)
_PACKAGES = ("mpmath",)
GRADER_VERSION = (
    f"{BEHAVIOUR}-" + hashlib.sha256(repr((_CONFIG, [(p, version(p)) for p in _PACKAGES])).encode()).hexdigest()[:8]
)


def grade_completion(scaffold: Scaffold, completion: str, gold: str, finish: str) -> Verdict:
    """Find the final-answer region as the scaffold defines it, and grade the region."""
    region = region_of(scaffold, completion, finish)
    return grade_region(region, gold, scaffold.region_form, finish, scaffold.answer_kind)


def region_of(scaffold: Scaffold, completion: str, finish: str) -> str | None:
    """Return the text to grade; None if the completion has none, or if it was truncated inside it. If the prompt opens
    the trace, as some chat templates do, a completion without the closing tag is an unfinished trace."""
    if finish == "length" and scaffold.chat and f"</{scaffold.trace_tag}>" not in completion:
        return None
    completion = visible(completion)
    cut_off = completion.rfind("<answer>") > completion.rfind("</answer>")
    if finish == "length" and scaffold.answer_form == "tag" and cut_off:
        return None
    region = scaffold.parse(completion).region
    return None if region is None else without_struck(region)


def grade_region(region: str | None, gold: str, form: AnswerForm, finish: str = "stop", kind: str = MATH) -> Verdict:
    r"""Return the verdict on one final-answer region.

    >>> grade_region("7", "7", "tag").verdict, grade_region(r"so \boxed{8}", "7", "boxed").verdict
    ('correct', 'wrong')
    """
    if kind != MATH:
        return grade_as(kind, region, gold, form, finish)
    start_work()
    texts, joined, fault = answer_texts(region, form, truncated=finish == "length")
    texts = texts[: MAX_ANSWERS + 1]
    try:
        if finish == "stop" and (verdict := _in_words(texts, gold)) is not None:
            return verdict
        stated = [found for found in map(read, texts) if found.fault != EMPTY]
        if fault or not stated:
            return Verdict("no_answer", fault or EMPTY, None, None)
        if len(texts) > MAX_ANSWERS:
            return Verdict("ambiguous", f"more than {MAX_ANSWERS} answers", stated[0].answer, None)
        if unread := next((found for found in stated if found.fault), None):
            return Verdict("wrong", unread.fault, unread.answer, None)
        return _judge(list(dict.fromkeys(found.answer for found in stated)), joined, gold)
    except RecursionError:
        return Verdict("ungradable", "nested too deeply", None, None)
    except Undecided as why:
        return Verdict("ungradable", f"cannot be decided: {why}", " , ".join(texts), None)


def _in_words(texts: list[str], gold: str) -> Verdict | None:
    """Return the verdict on an answer in words: the gold's own text, yes, no or "none"; None for any other answer."""
    first = min(texts, default=None)
    words, wanted = (
        {t.strip() if len(t) > MAX_ANSWER_CHARS else worded(t) or normalise(t) for t in some}
        for some in (texts, [gold])
    )
    if words == wanted and not words & {"", "nan", "null"}:
        return Verdict("correct", "identical text", gold, gold if len(gold) <= MAX_ANSWER_CHARS else None)
    if texts and denies_existence(gold) and all(map(denies_existence, texts)):
        # `no negative solutions` and `no maximum` do not mean `no solutions`
        denied, *others = ({*_PARTICULAR.findall(bare_words(t).replace("-", ""))} for t in (gold, *texts))
        if all(particulars <= (denied or {"real"}) for particulars in others):
            return Verdict("correct", "both say that there is none", first, None)
        return Verdict("wrong", "denies less than is asked for", first, None)
    meanings, meant = {yes_or_no(text) for text in texts}, yes_or_no(gold)
    if meant and meanings and "" not in meanings:
        return Verdict("correct" if meanings == {meant} else "wrong", "says yes or no", first, None)
    return None


def _judge(answers: list[str], joined: bool, gold: str) -> Verdict:
    """Return one verdict on the different answers of a region. joined: the answers form one list."""
    text = " , ".join(answers)
    for name, length in (("gold", len(gold)), ("answer", max(map(len, answers)))):
        if length > MAX_ANSWER_CHARS:
            return Verdict("ungradable", f"{name} longer than {MAX_ANSWER_CHARS} characters", text[:200], None)
    whole = [repaired(with_letters_of(normalise(answer), gold)) for answer in answers]
    if None in whole:
        return Verdict("ungradable", "unbalanced or empty brackets", text, None)
    comparison = Comparison()
    if not (stated := read(gold)).fault:
        gold = stated.answer
    want, got = shape(gold), [shape(answer) for answer in whole if answer is not None]
    if len(got) > 1:
        if all(comparison.agree(got[0], other) and comparison.agree(other, got[0]) for other in got[1:]):
            got = got[:1]
        elif joined and (want.kind in ("list", "set", "choice") or all(g.kind == "relation" for g in got)):
            got = [Shape("list", text, tuple(got))]
        else:
            return Verdict("ambiguous", "several different answers", text, None)
    prediction = got[0]
    verdict, reason = comparison.compare(prediction, want)
    if verdict == "correct" and comparison.roundings:
        reason = comparison.roundings[-1]
    return Verdict(verdict, reason, text, prediction.text)


_NARROWER = r"unique|non-?negative|negative|positive|integer|real|rational|even|odd|prime|non-?trivial"
_NOUN = (
    r"(?:solutions?|values?|numbers?|integers?|functions?|sequences?|polynomials?|points?|roots?|sets?|primes?|maximum"
    r"|minimum|[a-z](?![a-z]))"
)
_SUCH = rf"(?:such )?(?:an? )?(?:(?:{_NARROWER}) )*{_NOUN}"
_PARTICULAR = re.compile(rf"\b(?:{_NARROWER}|function|sequence|polynomial|point|root|set|prime|maximum|minimum)")
_NO_SUCH = re.compile(
    rf"(?:no,? )?(?:(?:there (?:is|are|exists?) )?no {_SUCH}(?: exists?)?|(?:there (?:is|are) )?none exists?|dne"
    rf"|(?:(?:it|this|that) is )?(?:impossible|not possible)|(?:(?:it|this|that|{_SUCH}) )?"
    rf"(?:(?:do|does) ?n[o']t|can ?not) exist|there (?:do|does) ?n[o']t exist (?:any )?{_SUCH})"
)


def denies_existence(text: str) -> bool:
    r"""Return whether an answer states that the requested object does not exist.

    >>> [denies_existence(t) for t in ("No, such a function does not exist.", r"\text{no real solutions}", "no more")]
    [True, True, False]
    """
    return bool(_NO_SUCH.fullmatch(" ".join(bare_words(text).split())))


_AFFIRMS = {"yes": "yes", "true": "yes", "correct": "yes", "no": "no", "false": "no", "incorrect": "no"}
_WHO = rf"(?:it|this|that|there|he|she|they|we|you|(?:such )?an? {_NOUN})"
_VERB = "(?:is|are|does|do|can|could|will|must|has|have)"
#: Restatements that may follow yes and no, such as `it can`.
_AGAIN = {
    "yes": rf"{_WHO} (?:exists?|{_VERB}(?: (?:always|so|true|correct|possible|exist|be done))?)",
    "no": rf"{_WHO} (?:{_VERB} ?(?:not|n[o']t)|can't|won't)"
    rf"(?: (?:so|true|correct|possible|exist|be done))?|{_WHO} (?:is|are) (?:impossible|false)",
}
_YES_OR_NO = re.compile(
    r"(?:(?:it|this|that|(?:the )?(?:statement|claim|assertion)) is (?=true|false))?"
    r"(?P<first>yes|no|true|false|correct|incorrect)(?: ?[,.;:!-]+ ?(?P<rest>.+))?"
)


def yes_or_no(text: str) -> str:
    """Return `yes` or `no` if a text is one of them, possibly with a restatement; else empty.

    >>> [yes_or_no(t) for t in ("Yes, it can.", "No, it is not possible.", "No", "Yes, if n is even", "No, it can.")]
    ['yes', 'no', 'no', '', '']
    """
    found = _YES_OR_NO.fullmatch(" ".join(bare_words(text).split()))
    if found is None:
        return ""
    meant = _AFFIRMS[found["first"]]
    return meant if found["rest"] is None or re.fullmatch(_AGAIN[meant], found["rest"].strip()) else ""


#: (answer, gold, verdict, reason)
OverrideRows = tuple[tuple[str, str, VerdictName, str], ...]
FIELDS = ("answer", "gold", "verdict", "reason")
_Text = Annotated[str, StringConstraints(pattern=r"\S")]


class _OverrideRow(BaseModel):
    answer: _Text
    gold: _Text
    verdict: VerdictName
    reason: _Text


@dataclass(frozen=True)
class Overrides:
    """Verdicts that a person sets. rows: sorted; their answers and golds are without insignificant spaces."""

    rows: OverrideRows = ()

    @cached_property
    def _verdicts(self) -> dict[tuple[str, str], tuple[VerdictName, str]]:
        return {(answer, gold): (verdict, reason) for answer, gold, verdict, reason in self.rows}

    def apply(self, verdict: Verdict, gold: str) -> Verdict:
        if not self.rows or verdict.answer is None:
            return verdict
        found = self._verdicts.get((squeeze(verdict.answer), squeeze(gold)))
        return verdict if found is None else replace(verdict, verdict=found[0], reason=f"override: {found[1]}")

    def version(self, grader: str) -> str:
        hashed = hashlib.sha256(json.dumps(self.rows).encode()).hexdigest()[:6]
        return f"{grader}+{hashed}" if self.rows else grader


@dataclass(frozen=True, slots=True)
class ActiveGrader:
    """The active grader: its version, and the verdicts of persons that override its own."""

    installed: str = GRADER_VERSION
    overrides: Overrides = field(default_factory=Overrides)

    @property
    def version(self) -> str:
        return self.overrides.version(self.installed)


def read_overrides(text: str, name: str) -> Overrides:
    """Read overrides from JSON lines with answer, gold, verdict and reason. Raise UserError with file and line.

    >>> o = read_overrides('{"answer": "six", "gold": "6m", "verdict": "wrong", "reason": "m is missing"}', "f")
    >>> o.apply(Verdict("correct", "equal", "six", "6"), "6m").verdict
    'wrong'
    """
    rows: dict[tuple[str, str], tuple[str, str, VerdictName, str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = _OverrideRow.model_validate_json(line)
        except ValidationError as error:
            raise UserError(sentences(error, f"{name}, line {number}")) from None
        key = squeeze(row.answer), squeeze(row.gold)
        if key in rows:
            raise UserError(
                f"{name}, line {number}: an earlier line has a verdict for this answer and gold; remove one"
            )
        rows[key] = *key, row.verdict, row.reason
    return Overrides(tuple(sorted(rows.values())))
