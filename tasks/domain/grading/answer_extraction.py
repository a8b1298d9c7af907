r"""Answer extraction: what a final-answer region states. Boxes before prose, anchors before bare numbers, no guess.

The same reading for every answer form: a box inside `<answer>` and prose inside a box are read alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tasks.domain.grading.answer_tags import answer_blocks
from tasks.domain.grading.bases import says_base
from tasks.domain.grading.boxes import boxed
from tasks.domain.grading.compound_quantities import compound_in
from tasks.domain.grading.latex_normalisation import normalise
from tasks.domain.grading.non_answers import denies, is_about, names_no_one
from tasks.domain.grading.number_words import counted, number_in_words, said_twice
from tasks.domain.grading.permutations import permuted
from tasks.domain.grading.quantities import number
from tasks.domain.grading.units import CHANGES_VALUE, QUALIFIED
from tasks.domain.grading.words import (
    prose_words,
    read_comparatives,
    unwrap_text,
    without_explanation,
    without_hedges,
    without_negations,
)
from tasks.domain.scaffolds import AnswerForm

MAX_PROSE_CHARS = 1_500
#: Different texts in one region; a region with more commits to none of them.
MAX_ANSWERS = 50
NO_BOX = r"no \boxed{} in the final answer"
CUT_OFF = "truncated inside the answer"
_PLACEHOLDER = re.compile(
    r"(?:the )?(?:final )?answer(?: here)?|your answer(?: here)?|\.{2,}|\?+|-+|n/?a|unknown|undetermined"
    r"|none given|none"
    r"|(?:no,? )?(?:(?:i|we|there) (?:have|is|am|can see) )?(?:no|not|without)"
    r"(?: (?:a|an|any|valid|clear|good|final|correct|real|further|single))*"
    r" (?:idea|clue|answer|guess|opinion|comment|thought|thanks|result|response|information|certain|known|given"
    r"|provided|available)s?"
    r"(?: (?:at all|whatsoever|here|yet|given|available|found|provided|sorry))*"
    r"|i (?:do ?n[o']t|can ?not|can't) (?:know|tell|determine|solve).*|not sure|no idea|idk|null|nan|undefined"
    r"|tbd|(?:the )?(?:final )?answer is|_+",
    re.I,
)
_STRONG = re.compile(
    r"\b(?:answer|ans|result|solution)s?\b(?: to [^.:]*?)?(?: is| are| =| ?:|\s*(?=\$|\\\())[:,]? *", re.I
)
_WEAK = re.compile(
    r"\b(?:is|are|equals|equal to|gives|yields|get|obtain|have|therefore|thus|hence|so)\b,?[: ]*|:\s+", re.I
)


@dataclass(frozen=True, slots=True)
class Extraction:
    """answers: texts, more than one if the region states several. joined: they stand in one list (`a, b and c`)."""

    status: Literal["ok", "no_answer", "negated", "ambiguous"]
    reason: str
    answers: tuple[str, ...] = ()
    joined: bool = False


def extract_answers(region: str, form: AnswerForm, truncated: bool = False) -> Extraction:
    r"""Answers that a region states.

    >>> extract_answers(r"It is $\boxed{7}$.", "boxed").answers, extract_answers("The answer is 12.", "tag").answers
    (('7',), ('12.',))
    >>> extract_answers("7", "boxed").reason
    'no \\boxed{} in the final answer'
    """
    blocks = _blocks(region, form)
    told: list[Extraction] = []
    joined = False
    for block in blocks:
        if len(told) > MAX_ANSWERS:
            break
        boxes, joined, cut = boxed(block)
        if cut and truncated:
            return Extraction("no_answer", CUT_OFF)
        told += [read(text) for text in (boxes[: MAX_ANSWERS + 1] or ([block] if form == "tag" else []))]
    if form == "boxed" and not told:
        return Extraction("no_answer", NO_BOX)
    stated = [t for t in told if t.status != "no_answer"]
    if not stated:
        return Extraction("no_answer", "empty answer")
    if len(told) > MAX_ANSWERS:
        return Extraction("ambiguous", f"more than {MAX_ANSWERS} answers", stated[0].answers)
    if len(stated) == 1:
        return stated[0]
    answers = tuple(dict.fromkeys(a for t in stated if t.status == "ok" for a in t.answers))
    if len(answers) == 1 or (joined and len(blocks) == 1 and answers):
        return Extraction("ok", "", answers, joined)
    return Extraction("ok", "", answers) if answers else stated[-1]


def answer_texts(region: str, form: AnswerForm) -> list[str]:
    """The different texts of a region that are read: its boxes, else (in a tag) all of it."""
    texts = (boxed(block)[0] or ([block] if form == "tag" else []) for block in _blocks(region, form))
    return list(dict.fromkeys(text for some in texts for text in some))


def _blocks(region: str, form: AnswerForm) -> list[str]:
    """The different texts inside the answer tags of a region, if it has any."""
    if form == "tag" and "<answer>" in region:
        return list(dict.fromkeys(answer_blocks(region, unclosed=False)))
    return [region]


def read(text: str) -> Extraction:
    """What one text states, with the prose around it taken away."""
    text = _without_trailing(re.sub(r"\s+", " ", text).strip())
    if not _says_something(text):
        return Extraction("no_answer", "empty answer")
    if len(text) > MAX_PROSE_CHARS:
        return Extraction("ok", "", (text,))
    if QUALIFIED.fullmatch(text) or says_base(text):
        return Extraction("ok", "", (text,))
    if twice := said_twice(text.strip(" .$")):
        return Extraction("ok" if twice[1] else "ambiguous", "" if twice[1] else "two different numbers", twice[:1])
    text = re.sub(r"\b(\d+|[a-z]) choose (\d+|[a-z])\b", r"\\binom{\1}{\2}", text)
    text = re.sub(r"\b(?:minus|negative)\s+(?=[\d$\\])", "-", text, flags=re.I)
    if names_no_one(text):
        return Extraction("ambiguous", "depends on a case", (text,))
    plain = read_comparatives(unwrap_text(text).replace("**", "" if text.startswith("**") or " **" in text else "**"))
    if denies(without_explanation(text), plain):
        return Extraction("negated", "states what the answer is not", (text,))
    affirmed = without_negations(plain)
    if affirmed != plain and not re.search(r"[\d\\]|(?<![A-Za-z])[A-Za-z](?![A-Za-z])", affirmed):
        return Extraction("negated", "states what the answer is not", (text,))
    affirmed = _labelled(_ASIDE.sub(_aside, without_hedges(affirmed)).strip(" ,;?"))
    return _from_sentence(affirmed) if prose_words(affirmed) else Extraction("ok", "", (affirmed,))


_TRAILING_REVERSED = re.compile(r"(?:[ ~]|[,;:! ]\\|\\\\|dauqq?\\)+")
_ASIDE = re.compile(r"\(([^()\d\\]*)\)")
#: In parentheses behind a number these change it.
_SCALED = re.compile(
    r"\b(?:base|binary|ternary|octal|hex(?:adecimal)?|dozens?|hundreds?|thousands?|[mb]illions?)\b", re.I
)


def _without_trailing(text: str) -> str:
    """Without the spaces and line breaks of LaTeX at its end."""
    trailing = _TRAILING_REVERSED.match(text[::-1])
    return text[: len(text) - trailing.end()] if trailing else text


def _aside(match: re.Match[str]) -> str:
    """Nothing, for a remark in parentheses (`(both work)`); the parenthesis itself for anything else.

    One word behind words is none: `increasing (decreasing)` says two things.
    """
    remark = len(match[1]) > 2 and prose_words(match[1]) and not _SCALED.search(match[1])
    worded = " " not in match[1].strip() and not re.search(r"[\d\\]", match.string)
    return " " if remark and not worded else match[0]


def _says_something(text: str) -> bool:
    plain = re.sub(r"\\(?:text|mathrm|mbox|textbf) ?\{\s*\}", "", normalise(text[:MAX_PROSE_CHARS]))
    plain = plain.replace(r"\ldots", "...")
    return bool(re.search(r"[A-Za-z\d]|\\\{ ?\\\}", plain)) and not _PLACEHOLDER.fullmatch(plain.strip(" .$*:"))


def _labelled(text: str) -> str:
    """Without the letter of a multiple-choice option, or `answer:`, before a value: `(A) 7` is 7."""
    return _OPTION.sub("", text)


_OPTION = re.compile(
    r"^(?:\(?[A-E]\)[:.]?\s+|\\text(?:bf|rm)? ?\{ ?\(?[A-E]\)? ?:?\}(?:\\[ ,;:]|\\q?quad|~|\s)*)"
    r"(?=[-\d\\$])"
    r"|^(?:option|choice)\s+(?=\(?[A-H]\b)"
    r"|^(?:the )?(?:final )?answer ?[:=] ?(?=\S)",
    re.I,
)


def _from_sentence(text: str) -> Extraction:
    if compound := compound_in(text):
        return Extraction("ok", "", (compound,))
    for candidate in _candidates(text):
        bare = candidate.strip(" .,;:!*")
        if says_base(bare):
            return Extraction("ok", "", (bare,))
        if every := permuted(bare):
            return Extraction("ok", "", (every,))
        words, percent, _ = bare.partition(" percent")
        if (in_words := number_in_words(words)) is not None:
            return Extraction("ok", "", (f"{in_words}{percent}",))
        if _says_something(bare) and (not prose_words(bare) or number(normalise(bare)) is not None):
            return Extraction("ok", "", (_labelled(candidate.strip()),))
    return _spans(without_explanation(_after(_STRONG, text) or text))


def _candidates(text: str) -> list[str]:
    """Readings of a sentence, the surest first."""
    short = without_explanation(text)
    found = [text, short]
    for strong in (_after(_STRONG, short), _after(_STRONG, text)):
        if strong:
            found += [strong, without_explanation(strong)]
    reversed_ = re.match(
        r"(.+?) (?:is|are) (?:the|my|our) (?:final |correct )?(?:answer|result|solution|value)", text, re.I
    )
    if reversed_:
        found.append(reversed_[1])
    if not _STRONG.search(short) and len(_WEAK.findall(short)) == 1:
        found.append(_after(_WEAK, short) or "")
    return [f for f in found if f.strip()]


def _after(pattern: re.Pattern[str], text: str) -> str | None:
    ends = [m.end() for m in pattern.finditer(text)]
    return text[ends[-1] :] if ends and _says_something(text[ends[-1] :]) else None


def _spans(text: str) -> Extraction:
    """A sentence: its formulas if it has any, its numbers if not, its words if neither."""
    formulas = [f.strip() for pair in re.findall(r"\$([^$]+)\$|\\\((.+?)\\\)", text) for f in pair if f.strip()]
    if len(formulas) == 1 and is_about(formulas[0], text):
        return Extraction("ok", "", (text,))
    if formulas:
        gaps = re.split(r"\$[^$]+\$|\\\(.+?\\\)", text)[1:-1]
        joined = all(re.fullmatch(r"[\s,;]*(?:and|or)?[\s,;]*", gap) for gap in gaps)
        return Extraction("ok", "", tuple(dict.fromkeys(formulas)), joined)
    numbers = re.findall(r"(?<![\w.\\{])-?\d[\d,]*(?:\.\d+)?(?:\s*/\s*\d+)?(?:\s*%)?(?![A-Za-z\d]|[.,]\d)", text)
    distinct = tuple(dict.fromkeys(n.rstrip(",") for n in numbers))
    if not distinct and not CHANGES_VALUE.search(text) and (words := counted(text)) is not None:
        return Extraction("ok", "", (words,))
    if len(distinct) == 1 and is_about(distinct[0], text):
        return Extraction("ok", "", (text,))
    if len(distinct) > 1 or (distinct and "\\" not in text and not CHANGES_VALUE.search(text)):
        return Extraction("ok", "", distinct)
    return Extraction("ok", "", (text,))
