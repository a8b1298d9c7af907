r"""What a final-answer region commits to: boxes before prose, anchors before bare numbers, never a guess."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tasks.domain.answers import matching, normalise, number
from tasks.domain.scaffolds import AnswerForm

NO_ANSWER = "empty answer"
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_BLOCK = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_PLACEHOLDER = re.compile(r"(?:answer here|\.{2,}|\?+|-|n/?a|unknown|none given|i do ?n[o']t know|idk|null|nan|your answer)\.?", re.I)
_ANCHOR = re.compile(r"(?:(?:final |correct )?answer(?: is| =| ?:)|\bis equal to|\bequals|\btherefore|\bthus|\bhence|\bso\b|\bis\b|\bare\b|\bget\b|:)[:,]? *", re.I)
_NEGATED = re.compile(r"[(,]?\s*\b(?:and not|but not|not|rather than|instead of|isn't|is not|n't)\b\s*\$?[^\s,();$]+(?:\$|\b)\)?", re.I)
_FUNCTIONS = set(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp max min gcd lcm mod pi sqrt inf deg det dim"
    " or and frac binom circ infty cup cap in le ge ne text pm mp theta alpha beta gamma cdot times".split()
)
_HEDGE = re.compile(r"\b(?:probably|perhaps|maybe|possibly|likely|i think|i believe|i guess|approximately|about|roughly|exactly|only|just|simply|either)\b,?", re.I)


@dataclass(frozen=True, slots=True)
class Committed:
    """answers: texts, more than one if the region states several. joined: they stand in one list (`a, b and c`)."""

    status: Literal["ok", "no_answer", "negated"]
    reason: str
    answers: tuple[str, ...] = ()
    joined: bool = False


def commit(region: str, form: AnswerForm, truncated: bool = False) -> Committed:
    r"""Answers that a region states.

    >>> commit(r"It is $\boxed{7}$.", "boxed").answers, commit("The answer is 12 apples.", "tag").answers
    (('7',), ('12 apples.',))
    >>> commit("7", "boxed").reason
    'no \\boxed{} in the final answer'
    """
    blocks = _BLOCK.findall(region) if form == "tag" and "<answer>" in region else [region]
    found: list[str] = []
    joined = False
    for block in blocks:
        boxes, joined, cut = boxed(block)
        if cut and truncated:
            return Committed("no_answer", "truncated inside the answer")
        if boxes or form == "boxed":
            found += boxes
        else:
            if len(block) > 5_000:
                found.append(block.strip())
                continue
            told = _from_prose(block)
            if told.status != "ok":
                if len(blocks) == 1:
                    return told
                continue
            found += told.answers
    found = [answer for answer in found if answer.strip() and not _PLACEHOLDER.fullmatch(answer.strip())]
    distinct = list(dict.fromkeys(found))
    if not distinct:
        missing = form == "boxed" and not _BOX.search(region)
        return Committed("no_answer", r"no \boxed{} in the final answer" if missing else NO_ANSWER)
    return Committed("ok", "", tuple(distinct), joined and len(blocks) == 1)


def boxed(text: str) -> tuple[list[str], bool, bool]:
    r"""(contents of every `\boxed`, are they one list, was the last one left open).

    >>> boxed(r"\boxed{\frac{1}{2}} and \boxed{3}")
    (['\\frac{1}{2}', '3'], True, False)
    """
    found: list[str] = []
    gaps: list[str] = []
    end, cut = 0, False
    for match in _BOX.finditer(text):
        start = match.end()
        if start < end:
            continue
        if found:
            gaps.append(text[end : match.start()])
        if text[start : start + 1] != "{":
            bare = re.match(r"\S+", text[start:])
            found.append(bare.group().rstrip("$.,") if bare else "")
            end = start + (bare.end() if bare else 0)
            continue
        closing = _closing(text, start)
        cut = closing is None
        found.append(text[start + 1 : closing] if closing is not None else _to_line_end(text[start + 1 :]))
        end = closing + 1 if closing is not None else len(text)
    joined = all(re.fullmatch(r"[\s$,;]*(?:and|or|\\text\{ ?(?:and|or) ?\})?[\s$,;]*", gap) for gap in gaps)
    return found, joined and len(found) > 1, cut


def _closing(text: str, start: int) -> int | None:
    depth = 0
    for i in range(start, len(text)):
        if i and text[i - 1] == "\\":
            continue
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i
    return None


def _to_line_end(text: str) -> str:
    return text.split("\n", 1)[0].rstrip("$. ")


def _from_prose(text: str) -> Committed:
    text = text.strip()
    if not text or _PLACEHOLDER.fullmatch(text):
        return Committed("no_answer", NO_ANSWER)
    affirmed = _NEGATED.sub(" ", text) if re.search(r"\b(?:not|n't|than|of)\b", text) else text
    if not re.search(r"[\w\\]", affirmed) or (affirmed != text and not re.search(r"\d|\\", affirmed) and _wordy(affirmed)):
        return Committed("negated", "states what the answer is not", (text,))
    affirmed = re.sub(r"^\s*(?:it is|but|,|;)+\s*", "", _HEDGE.sub(" ", affirmed).strip(" ,;?"))
    if not _wordy(affirmed):
        return Committed("ok", "", (affirmed,))
    after = _last_anchor(affirmed)
    if after is not None and after.strip():
        affirmed = after.strip()
        if not _wordy(affirmed):
            return Committed("ok", "", (affirmed,))
    return _spans(affirmed)


def _wordy(text: str) -> bool:
    """Does the text hold prose beside mathematics?"""
    bare = re.sub(r"\\[A-Za-z]+(?:\s*\{[A-Za-z ,]*\})?", " ", text)
    return any(w.lower() not in _FUNCTIONS for w in re.findall(r"[A-Za-z]{2,}", bare))


def _last_anchor(text: str) -> str | None:
    for pattern in (r"answer(?: is| =| ?:)[:,]? *", _ANCHOR.pattern):
        ends = [m.end() for m in re.finditer(pattern, text, re.I)]
        if ends and text[ends[-1] :].strip(" .$*"):
            return text[ends[-1] :]
    return None


def _spans(text: str) -> Committed:
    """A sentence: its formulas if it has any, its numbers with their units if not, its words if neither."""
    normal = normalise(text)
    if number(normal) is not None:
        return Committed("ok", "", (text,))
    formulas = [f for pair in re.findall(r"\$([^$]+)\$|\\\((.+?)\\\)", text) for f in pair if f.strip()]
    if formulas:
        return Committed("ok", "", tuple(dict.fromkeys(f.strip() for f in formulas)), len(formulas) > 1)
    numbers = re.findall(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:\s*/\s*\d+)?(?:\s*%)?", text)
    if numbers:
        return Committed("ok", "", tuple(dict.fromkeys(n.rstrip(",") for n in numbers)))
    return Committed("ok", "", (text,))


__all__ = ["NO_ANSWER", "Committed", "boxed", "commit", "matching"]
