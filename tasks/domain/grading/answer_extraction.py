r"""Answer extraction: what a final-answer region states. Boxes before prose, anchors before bare numbers, no guess.

The same reading for every answer form: a box inside `<answer>` and prose inside a box are read alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from tasks.domain.grading.latex_normalisation import normalise
from tasks.domain.grading.number_words import number_in_words
from tasks.domain.grading.quantities import CHANGES_VALUE, number
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
MAX_BOXES = 50
NO_BOX = r"no \boxed{} in the final answer"
CUT_OFF = "truncated inside the answer"
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*")
_BLOCK = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_PLACEHOLDER = re.compile(
    r"(?:the )?(?:final )?answer(?: here)?|your answer(?: here)?|\.{2,}|\?+|-+|n/?a|unknown|undetermined"
    r"|none given|none"
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
_INVISIBLE = re.compile(r"[\u200b-\u200f\u2060\ufeff\x00-\x08\x0b-\x1f\x7f]")


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
    blocks = _BLOCK.findall(region) if form == "tag" and "<answer>" in region else [region]
    told: list[Extraction] = []
    joined = False
    for block in blocks:
        boxes, joined, cut = boxed(block)
        if cut and truncated:
            return Extraction("no_answer", CUT_OFF)
        told += [read(text) for text in (boxes or ([block] if form == "tag" else []))]
    if form == "boxed" and not told:
        return Extraction("no_answer", NO_BOX)
    stated = [t for t in told if t.status != "no_answer"]
    if not stated:
        return Extraction("no_answer", "empty answer")
    if len(stated) == 1:
        return stated[0]
    answers = tuple(dict.fromkeys(a for t in stated if t.status == "ok" for a in t.answers))
    if len(answers) == 1 or (joined and len(blocks) == 1 and answers):
        return Extraction("ok", "", answers, joined)
    return Extraction("ok", "", answers) if answers else stated[-1]


def answer_texts(region: str, form: AnswerForm) -> list[str]:
    """The texts of a region that are read: its boxes, else (in a tag) all of it."""
    blocks = _BLOCK.findall(region) if form == "tag" and "<answer>" in region else [region]
    return [text for block in blocks for text in (boxed(block)[0] or ([block] if form == "tag" else []))]


def boxed(text: str) -> tuple[list[str], bool, bool]:
    r"""(contents of every `\boxed`, do they stand in one list, was the last one left open).

    >>> boxed(r"\boxed{\frac{1}{2}} and \boxed{3}")
    (['\\frac{1}{2}', '3'], True, False)
    """
    found: list[str] = []
    gaps: list[str] = []
    end, cut = 0, False
    for match in islice(_BOX.finditer(text), MAX_BOXES):
        start = match.end()
        if match.start() < end:
            continue
        gap = text[end : match.start()]
        gaps.append(gap)
        denied = _DENIAL.search(gap)
        if text[start : start + 1] != "{":
            bare = re.match(r"[^\s$]+", text[start:])
            found.append(bare.group().rstrip(".,") if bare else "")
            end = start + (bare.end() if bare else 0)
            continue
        closing = _closing(text, start)
        cut = closing is None
        inner = text[start + 1 : closing] if closing is not None else text[start + 1 :].split("\n", 1)[0].rstrip("$. ")
        end = closing + 1 if closing is not None else len(text)
        percent = closing is not None and re.match(r"\s*\\?%", text[end:])
        found.append(("not " if denied else "") + _unboxed(inner) + (r"\%" if percent else ""))
    separators = [re.fullmatch(r"[\s$,;]*(?:and|or|\\text\{ ?(?:and|or) ?\})?[\s$,;]*", gap) for gap in gaps[1:]]
    return found, len(found) > 1 and all(separators), cut


def _unboxed(inner: str) -> str:
    nested, _, _ = boxed(inner) if _BOX.match(inner.strip()) else ([], False, False)
    return nested[0] if len(nested) == 1 else inner


def _closing(text: str, start: int) -> int | None:
    depth = 0
    for i in range(start, len(text)):
        if text[i] in "{}" and not _escaped(text, i):
            depth += 1 if text[i] == "{" else -1
            if depth == 0:
                return i
    return None


def _escaped(text: str, i: int) -> bool:
    r"""Is the character at i behind a backslash of its own? In `7\\}` it is not: two backslashes break a line."""
    return (i - len(text[:i].rstrip("\\"))) % 2 == 1


def read(text: str) -> Extraction:
    """What one text states, with the prose around it taken away."""
    text = _TRAILING.sub("", re.sub(r"\s+", " ", _INVISIBLE.sub("", text)).strip())
    text = re.sub(r"\b(\d+|[a-z]) choose (\d+|[a-z])\b", r"\\binom{\1}{\2}", text)
    text = re.sub(r"\b(?:minus|negative)\s+(?=[\d$\\])", "-", text, flags=re.I)
    if not _says_something(text):
        return Extraction("no_answer", "empty answer")
    if len(text) > MAX_PROSE_CHARS:
        return Extraction("ok", "", (text,))
    if _NOT_ONE.search(text):
        return Extraction("ambiguous", "depends on a case", (text,))
    if _DENIED.search(without_explanation(text)):
        return Extraction("negated", "states what the answer is not", (text,))
    plain = read_comparatives(unwrap_text(text).replace("**", "" if text.startswith("**") or " **" in text else "**"))
    affirmed = without_negations(plain)
    if affirmed != plain and not re.search(r"[\d\\]|(?<![A-Za-z])[A-Za-z](?![A-Za-z])", affirmed):
        return Extraction("negated", "states what the answer is not", (text,))
    affirmed = _labelled(_ASIDE.sub(_aside, without_hedges(affirmed)).strip(" ,;?"))
    return _from_sentence(affirmed) if prose_words(affirmed) else Extraction("ok", "", (affirmed,))


_NOT_ONE = re.compile(
    r"\b(?:otherwise|depending on|depends on|between|neither|nor|nearly|almost|close to|unlikely|and so on|etc"
    r"|just (?:over|under)|or (?:none|nothing)|(?:none|nothing),? or)\b",
    re.I,
)
_DENIED = re.compile(
    r"\b(?:is|are|was|can)(?: ?not|n't) (?:be )?(?:the|a|an|my|our)?\b ?(?:final |right |correct )?"
    r"(?:answer|solution|result|correct|right|possible|valid)\b"
    r"|\b(?:is|are) (?:impossible|wrong|incorrect|invalid|false)\b"
    r"|\b(?:does|do)(?: not|n't) (?:work|hold|satisfy)\b|\bfails?\b|\bnot not\b",
    re.I,
)
_DENIAL = re.compile(r"(?:\bnot|n't|\bnever|\brather than|\binstead of|\bexcept)(?: equal to)?[\s$(:]*$", re.I)
_TRAILING = re.compile(r"(?:\s|\\[,;:! ]|\\\\|\\q?quad|~)+$")
_ASIDE = re.compile(r"\(([^()\d\\]*)\)")


def _aside(match: re.Match[str]) -> str:
    """Nothing, for a remark in parentheses (`(both work)`); the parenthesis itself for anything else."""
    return " " if len(match[1]) > 2 and prose_words(match[1]) else match[0]


def _says_something(text: str) -> bool:
    plain = re.sub(r"\\(?:text|mathrm|mbox|textbf) ?\{\s*\}", "", normalise(text[:MAX_PROSE_CHARS]))
    plain = plain.replace(r"\ldots", "...")
    return bool(re.search(r"[A-Za-z\d]|\\\{ ?\\\}", plain)) and not _PLACEHOLDER.fullmatch(plain.strip(" .$*:"))


def _labelled(text: str) -> str:
    """Without the letter of a multiple-choice option before a value: `(A) 7` is 7."""
    return _OPTION.sub("", text)


_OPTION = re.compile(
    r"^(?:\(?[A-E]\)[:.]?\s+|\\text(?:bf|rm)? ?\{ ?\(?[A-E]\)? ?:?\}(?:\\[ ,;:]|\\q?quad|~|\s)*)"
    r"(?=[-\d\\$])"
    r"|^(?:option|choice)\s+(?=\(?[A-H]\b)",
    re.I,
)


def _from_sentence(text: str) -> Extraction:
    for candidate in _candidates(text):
        bare = candidate.strip(" .,;:!*")
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
    if formulas:
        gaps = re.split(r"\$[^$]+\$|\\\(.+?\\\)", text)[1:-1]
        joined = all(re.fullmatch(r"[\s,;]*(?:and|or)?[\s,;]*", gap) for gap in gaps)
        return Extraction("ok", "", tuple(dict.fromkeys(formulas)), joined)
    numbers = re.findall(r"(?<![\w.\\{])-?\d[\d,]*(?:\.\d+)?(?:\s*/\s*\d+)?(?:\s*%)?(?![A-Za-z])", text)
    distinct = tuple(dict.fromkeys(n.rstrip(",") for n in numbers))
    if len(distinct) > 1 or (distinct and "\\" not in text and not CHANGES_VALUE.search(text)):
        return Extraction("ok", "", distinct)
    return Extraction("ok", "", (text,))
