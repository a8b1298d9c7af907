r"""The one grader: reward, screening, evaluation and regrading all judge with this module.

It sees the final-answer region and the gold, nothing else. The form of an answer (list, tuple, interval,
equation) is compared here, exactly; only terms that are not plain numbers go to a computer algebra system.
Nothing here limits time or memory: symbolic comparison may hang, so only `tasks.engines.grading.graders` calls it.

Two exact values match only if they are equal; what a decimal may be off is in `tasks.domain.grading.terms`, and in the
reason of the verdict.
"""

from __future__ import annotations

import hashlib
import re
from importlib.metadata import version

from tasks.domain.grading.comparison import agree, compare
from tasks.domain.grading.kinds import grade_as
from tasks.domain.grading.latex_normalisation import normalise, repaired
from tasks.domain.grading.reading import MAX_ANSWERS, Extraction, answer_texts, extract_answers, read
from tasks.domain.grading.regions import visible, without_struck
from tasks.domain.grading.shapes import Shape, shape, with_parameter_of
from tasks.domain.grading.terms import (
    EQUAL,
    LEAST_DIGITS,
    MACHINE_TOLERANCE,
    Matcher,
    Undecided,
    Verdict,
    symbolic_same,
)
from tasks.domain.grading.words import denies_existence, same_denial, yes_or_no
from tasks.domain.scaffolds import MATH, AnswerForm, Scaffold

BEHAVIOUR = 9
MAX_ANSWER_CHARS = 1_500
#: An answer in words is no longer.
MAX_WORDED_CHARS = 200
_CONFIG = (BEHAVIOUR, LEAST_DIGITS, str(MACHINE_TOLERANCE), MAX_ANSWER_CHARS)
_PACKAGES = ("math-verify", "latex2sympy2-extended", "sympy")
GRADER_VERSION = (
    f"{BEHAVIOUR}-" + hashlib.sha256(repr((_CONFIG, [(p, version(p)) for p in _PACKAGES])).encode()).hexdigest()[:8]
)


def grade_completion(
    scaffold: Scaffold, completion: str, gold: str, finish: str, same: Matcher | None = None
) -> Verdict:
    """Parse with the scaffold, then grade the region it defines."""
    region = region_of(scaffold, completion, finish)
    return grade_region(region, gold, scaffold.answer_form, finish, scaffold.answer_kind, same=same)


def region_of(scaffold: Scaffold, completion: str, finish: str) -> str | None:
    """The only text that is graded; null if there is none, or if the rollout was cut off inside it.

    A chat template may open the trace in the prompt: what is cut off before closing it is a trace that never ended.
    """
    if finish == "length" and scaffold.chat and f"</{scaffold.trace_tag}>" not in completion:
        return None
    completion = visible(completion)
    cut_off = completion.rfind("<answer>") > completion.rfind("</answer>")
    if finish == "length" and scaffold.answer_form == "tag" and cut_off:
        return None
    region = scaffold.parse(completion).region
    return None if region is None else without_struck(region)


def grade_region(
    region: str | None, gold: str, form: AnswerForm, finish: str = "stop", kind: str = MATH, same: Matcher | None = None
) -> Verdict:
    r"""Verdict on one final-answer region.

    kind: of the answer. same: how two terms are compared; the symbolic comparison unless told otherwise.

    >>> grade_region("7", "7", "tag").verdict, grade_region(r"so \boxed{8}", "7", "boxed").verdict
    ('correct', 'wrong')
    """
    if kind != MATH:
        return grade_as(kind, region, gold, form, finish)
    try:
        return _grade(region, gold, form, finish, same or symbolic_same)
    except RecursionError:
        return Verdict("ungradable", "nested too deeply", None, None)


def _grade(region: str | None, gold: str, form: AnswerForm, finish: str, same: Matcher) -> Verdict:
    if region is None:
        return Verdict("no_answer", "truncated before an answer" if finish == "length" else "no answer tag", None, None)
    found = extract_answers(region, form, truncated=finish == "length")
    texts = {worded(text) or text.strip() for text in answer_texts(region, form)[: MAX_ANSWERS + 1]}
    if finish == "stop" and texts & {gold.strip(), worded(gold)} - {"", "nan", "null"} and len(texts) == 1:
        return Verdict("correct", "identical text", gold, gold if len(gold) <= MAX_ANSWER_CHARS else None)
    if finish == "stop" and texts and denies_existence(gold) and all(map(denies_existence, texts)):
        if all(same_denial(text, gold) for text in texts):
            return Verdict("correct", "both say that there is none", min(texts), None)
        return Verdict("wrong", "denies less than is asked for", min(texts), None)
    said = {yes_or_no(text) for text in texts}
    if finish == "stop" and (asked := yes_or_no(gold)) and said and "" not in said:
        return Verdict("correct" if said == {asked} else "wrong", "says yes or no", min(texts), None)
    if found.status == "no_answer":
        return Verdict("no_answer", found.reason, None, None)
    if found.status == "unread":
        return Verdict("wrong", found.reason, found.answers[0], None)
    if found.status == "ambiguous":
        return Verdict("ambiguous", found.reason, found.answers[0], None)
    return _judge(found, gold, same)


def worded(text: str) -> str:
    r"""An answer in words, blind to case and to `\text`; empty for anything that is not words.

    >>> worded(r"\text{Does not exist.}"), worded("7")
    ('does not exist', '')
    """
    if len(text) > MAX_WORDED_CHARS:
        return ""
    plain = re.sub(r"\\(?:text|mbox|textbf|mathrm|textrm) ?\{([^{}]*)\}", r"\1", text).strip(" .$*").lower()
    plain = re.sub(
        r"^(?:(?:it is|it's|the (?:final )?answer is|answer:) )?[$ ]*(?:(?:an?|the) (?=[a-z]{4}))?", "", plain
    )
    mixed = re.search(r"[a-z]{4}", plain) and re.fullmatch(r"[a-z0-9][a-z0-9' ,;-]{2,100}", plain)
    return plain if mixed or re.fullmatch(r"[a-z][a-z' -]{2,60}", plain) else ""


def _judge(found: Extraction, gold: str, matcher: Matcher) -> Verdict:
    text = " , ".join(found.answers)
    if text.strip() == gold.strip():
        return Verdict("correct", "identical text", text, text if len(text) <= MAX_ANSWER_CHARS else None)
    if len(gold) > MAX_ANSWER_CHARS:
        return Verdict("ungradable", f"gold longer than {MAX_ANSWER_CHARS} characters", text[:200], None)
    if max(map(len, found.answers)) > MAX_ANSWER_CHARS:
        if text.strip().isdigit():
            return Verdict("wrong", "not equal", text[:200], None)
        return Verdict("ungradable", f"answer longer than {MAX_ANSWER_CHARS} characters", text[:200], None)
    whole = [repaired(with_parameter_of(normalise(answer), gold)) for answer in found.answers]
    if None in whole:
        return Verdict("ungradable", "unbalanced or empty brackets", text, None)
    roundings: list[str] = []
    undecided: list[str] = []

    def same(one: str, other: str) -> bool:
        """Compares two terms, and remembers what was rounded and what nobody can tell."""
        try:
            match = matcher(one, other)
        except Undecided as why:
            undecided.append(str(why))
            return False
        roundings.extend([match] if match not in ("", EQUAL) else [])
        return bool(match)

    stated = read(gold)
    if stated.status == "ok" and len(stated.answers) == 1:
        gold = stated.answers[0]
    want, got = shape(gold), [shape(answer) for answer in whole if answer is not None]
    if len(got) > 1:
        if all(agree(got[0], other, same) and agree(other, got[0], same) for other in got[1:]):
            got = got[:1]
        elif found.joined and (want.kind in ("list", "set", "choice") or all(g.kind == "relation" for g in got)):
            got = [Shape("list", text, tuple(got))]
        else:
            return Verdict("ambiguous", "several different answers", text, None)
    prediction = got[0]
    verdict, reason = compare(prediction, want, same)
    if verdict != "correct" and undecided:
        return Verdict("ungradable", f"cannot be decided: {undecided[0]}", text, prediction.text)
    return Verdict(verdict, roundings[-1] if verdict == "correct" and roundings else reason, text, prediction.text)
