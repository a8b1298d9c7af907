r"""Answer kinds: how answers other than mathematics are read and compared.

A kind reads the answers in the regions and boxes of a completion. Varband has some kinds, and a package can provide
others as graders (entry point `varband.graders`: an object with `read` and optionally `same`). Model output is never
executed.
"""

from __future__ import annotations

import operator
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from storage.errors import UserError, did_you_mean
from tasks.domain import plugins
from tasks.domain.grading.comparison import Verdict
from tasks.domain.grading.formulas import number
from tasks.domain.grading.reading import MAX_ANSWER_CHARS, answer_texts, read
from tasks.domain.grading.texts import TEXT_COMMANDS, normalise
from tasks.domain.scaffolds import MATH, AnswerForm

#: Start of a verdict's reason if another package's grader raised an error.
RAISED = "raised by grader "


@dataclass(frozen=True, slots=True)
class AnswerKind:
    """A reader of answers and their comparison.

    - read: returns the distinct answers in a text in their normal form, which it leaves unchanged when it reads them
      again; empty if the text has no answer of this kind.
    - same: returns whether an answer in normal form equals a gold.
    """

    read: Callable[[str], Sequence[str]]
    same: Callable[[str, str], bool] = operator.eq


def integers(text: str) -> list[str]:
    r"""Read a whole number in any notation. A calculation such as 14/2 is not a whole number.

    >>> [integers(t) for t in ("7", "$1{,}024$.", "The answer is 12.", "x = -3", "7.0", "7.5", "14/2", "7 cm", "six")]
    [['7'], ['1024'], ['12'], ['-3'], ['7'], [], [], [], ['6']]
    """
    found = read(text)
    written = number(re.sub(r"^[A-Za-z]\w* ?= ?", "", normalise(found.answer)))
    if found.fault or written is None or written.unit or re.search(r"/|\\[dt]?frac", found.answer):
        return []
    return [str(written.value.numerator)] if written.value.denominator == 1 else []


_LETTER = r"\(?([A-J])\)?"
_ALONE = re.compile(r"[\s$*(\[{]*(?:option|choice|answer)?[\s:$*(\[{]*([A-Ja-j])[\s$*)\]}.:]*", re.I)
_LABEL = re.compile(r"[\s$*]*(?:\(([A-Ja-j])\)|([A-J])[).:]|([a-j])\))\s+(?!(?:or|and)\b)\S")
#: A letter that names an option, and is not an article or pronoun before another word.
_CHOSEN = re.compile(
    r"(?<![A-Za-z\\])([A-J])(?![A-Za-z'’])(?!\s+(?!(?:is|or|and|because|since|as|not|but|was)\b)[a-z])"
)
_SMALL = re.compile(r"\b(?:answer|option|choice)(?: is)?[:\s]+\(?([a-j])(?![A-Za-z'’]|\s+[a-z])")
_DENIED = re.compile(
    rf"\b(?:not|nor|neither|than|isn't|rules? out)\s+(?:option |choice |answer )?{_LETTER}(?![A-Za-z])"
)


def choices(text: str) -> list[str]:
    r"""Read the letters of options, A to J: a letter alone, before the option's text, or in a sentence.

    >>> [choices(t) for t in ("B", "(b)", r"\text{C}.", "B) 42", "The answer is D.", "A or B", "B, not C", "a cat")]
    [['B'], ['B'], ['C'], ['B'], ['D'], ['A', 'B'], ['B'], []]
    """
    text = TEXT_COMMANDS.sub(r" \1 ", unicodedata.normalize("NFKC", text))
    if alone := _ALONE.fullmatch(text):
        return [alone[1].upper()]
    if label := _LABEL.match(text):
        return [(label[1] or label[2] or label[3]).upper()]
    affirmed = _DENIED.sub(" ", text)
    return list(dict.fromkeys(_CHOSEN.findall(affirmed) or [small.upper() for small in _SMALL.findall(affirmed)]))


def exact(text: str) -> list[str]:
    """Return the text itself, with spaces and accents normalised.

    >>> exact("  New   York "), exact(" ")
    (['New York'], [])
    """
    plain = " ".join(unicodedata.normalize("NFC", text).split())
    return [plain] if plain else []


OWN = {"integer": AnswerKind(integers), "multiple_choice": AnswerKind(choices), "exact_text": AnswerKind(exact)}


def pinned(kind: str) -> str:
    """Return a kind's name for fingerprints, with the version of its package if another package provides it. Raise
    UserError for an unknown kind."""
    if kind == MATH or kind in OWN:
        return kind
    try:
        return plugins.pinned("varband.graders", kind)
    except UserError as error:
        if kind.partition("@")[0] in plugins.plugin_names("varband.graders"):
            raise
        known = (MATH, *OWN)
        raise UserError(f"{error}{did_you_mean(kind, known)} (built in: {', '.join(known)})") from None


def check(kind: str) -> None:
    """Raise UserError for a kind that is not usable here."""
    if kind != MATH:
        kind_of(kind)


def kind_of(name: str) -> AnswerKind:
    """Return a kind by its name. Raise UserError for a kind that is missing, has another version or lacks `read`."""
    if name in OWN:
        return OWN[name]
    found = plugins.plugged("varband.graders", name)
    if not callable(getattr(found, "read", None)):
        raise UserError(f"grader {name} has no function `read`; it must return the answers in a text")
    return AnswerKind(found.read, getattr(found, "same", operator.eq))  # type: ignore[attr-defined]


def grade_as(name: str, region: str | None, gold: str, form: AnswerForm, finish: str) -> Verdict:
    r"""Return the verdict on one final-answer region for a kind other than mathematics.

    >>> [grade_as("multiple_choice", r, "B", "tag", "stop").verdict for r in ("(B) 42", "C", "A or B", "?", None)]
    ['correct', 'wrong', 'ambiguous', 'wrong', 'no_answer']
    >>> grade_as("exact_text", "Paris", "Paris, France", "tag", "stop").reason
    'not equal'
    """
    kind, what = kind_of(name), name.partition("@")[0].replace("_", " ")
    found, _, fault = answer_texts(region, form, finish == "length")
    texts = [text.strip() for text in found if text.strip()]
    if not texts:
        return Verdict("no_answer", fault or "empty answer", None, None)
    answer = " , ".join(texts)[:MAX_ANSWER_CHARS]
    if max(map(len, texts)) > MAX_ANSWER_CHARS:
        return Verdict("ungradable", f"answer longer than {MAX_ANSWER_CHARS} characters", answer[:200], None)
    try:
        stated = list(dict.fromkeys(one for text in texts for one in _read(kind, text)))
        golds = _read(kind, gold)
        if len(stated) > 1:
            return Verdict("ambiguous", "several different answers", answer, None)
        if not stated:
            return Verdict("wrong", f"states no {what}", answer, None)
        if len(golds) != 1:
            return Verdict("ungradable", f"the gold states {len(golds)} answers as {what}", answer, stated[0])
        right = kind.same(stated[0], golds[0])
        if right not in (True, False):
            raise TypeError(f"same returned {right!r:.60}, neither true nor false")
    except (MemoryError, RecursionError):
        raise
    except (Exception, SystemExit) as error:  # another package's grader may raise anything
        return Verdict("ungradable", f"{RAISED}{name}: {plugins.error_line(error)}"[:200], answer, None)
    return Verdict("correct" if right else "wrong", f"by {what}" if right else "not equal", answer, stated[0])


def _read(kind: AnswerKind, text: str) -> list[str]:
    found = kind.read(text)
    listed = None if found is None or isinstance(found, str) else list(found)
    if listed is None or not all(isinstance(one, str) for one in listed):
        raise TypeError(f"read returned {found!r:.60}, not a list of texts")
    return listed


def faults_of_answer(kind: str, answer: str) -> str:
    """Return why an answer (an example's or a gold) is not of this kind; empty if it is of this kind."""
    if kind == MATH:
        return ""
    verdict = grade_as(kind, answer, answer, "tag", "stop")
    what = kind.partition("@")[0].replace("_", " ")
    return "" if verdict.correct else f"{answer[:60]!r} is no {what} ({verdict.reason})"
