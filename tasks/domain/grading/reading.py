r"""What a final-answer region states, read token by token with a small grammar that refuses what it does not read.

A text becomes a line of marks: `#` for a formula or a number, `@` for a remark in brackets, words as they are. The
line must match one of the sentences below from its first mark to its last. No word is skipped: it belongs to a lead-in,
to what is asked for, to a unit, to a condition or to an explanation, or the text is not understood.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from tasks.domain.grading.latex_normalisation import normalise
from tasks.domain.grading.quantities import (
    SCALES,
    SINGULAR,
    compound_quantity,
    is_unit,
    measures,
    number_in_words,
    says_base,
)
from tasks.domain.grading.regions import answer_blocks, boxed
from tasks.domain.grading.shapes import permuted
from tasks.domain.grading.words import FUNCTION, TEXT_COMMANDS, is_word, prose_words
from tasks.domain.scaffolds import AnswerForm

MAX_PROSE_CHARS = 1_500
#: Different texts in one region; a region with more commits to none of them.
MAX_ANSWERS = 50
NO_BOX = r"no \boxed{} in the final answer"
CUT_OFF = "truncated inside the answer"
NOT_UNDERSTOOD = "not understood"
#: Of a text with more marks only what follows "the answer is" can be read.
MAX_MARKS = 60


@dataclass(frozen=True, slots=True)
class Extraction:
    """answers: texts, more than one if the region states several. joined: they stand in one list (`a, b and c`)."""

    status: Literal["ok", "no_answer", "unread", "ambiguous"]
    reason: str
    answers: tuple[str, ...] = ()
    joined: bool = False


def extract_answers(region: str, form: AnswerForm, truncated: bool = False) -> Extraction:
    r"""Answers that a region states.

    >>> extract_answers(r"It is $\boxed{7}$.", "boxed").answers, extract_answers("The answer is 12.", "tag").answers
    (('7',), ('12',))
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
    if unread := next((t for t in stated if t.status != "ok"), None):
        return unread
    return Extraction("ok", "", tuple(dict.fromkeys(a for t in stated for a in t.answers)), joined and len(blocks) == 1)


def answer_texts(region: str, form: AnswerForm) -> list[str]:
    """The different texts of a region that are read: its boxes, else (in a tag) all of it."""
    texts = (boxed(block)[0] or ([block] if form == "tag" else []) for block in _blocks(region, form))
    return list(dict.fromkeys(text for some in texts for text in some))


def _blocks(region: str, form: AnswerForm) -> list[str]:
    """The different texts inside the answer tags of a region, if it has any."""
    if form == "tag" and "<answer>" in region:
        return list(dict.fromkeys(answer_blocks(region, unclosed=False)))
    return [region]


_PLACEHOLDER = re.compile(
    r"(?:the )?(?:final )?answer(?: here)?|your answer(?: here)?|\.{2,}|\?+|-+|n/?a|unknown|undetermined"
    r"|none(?: given)?"
    r"|(?:no,? )?(?:(?:i|we|there) (?:have|is|am|can see) )?(?:no|not|without)"
    r"(?: (?:a|an|any|valid|clear|good|final|correct|real|further|single))*"
    r" (?:idea|clue|answer|guess|opinion|comment|thought|thanks|result|response|information|certain|known|given"
    r"|provided|available|sure)s?(?: (?:at all|whatsoever|here|yet|given|available|found|provided|sorry))*"
    r"|i (?:do ?n[o']t|can ?not|can't) (?:know|tell|determine|solve).*|idk|null|nan|undefined|tbd"
    r"|(?:the )?(?:final )?answer is|_+",
    re.I,
)


def states_nothing(text: str) -> bool:
    """Is a text empty, or does it stand in place of an answer: `?`, `none given`, `I do not know`?"""
    plain = re.sub(r"\\(?:text|mathrm|mbox|textbf) ?\{\s*\}", "", normalise(text[:MAX_PROSE_CHARS]))
    plain = plain.replace(r"\ldots", "...")
    return not re.search(r"[A-Za-z\d]|\\\{ ?\\\}", plain) or bool(_PLACEHOLDER.fullmatch(plain.strip(" .$*:")))


@dataclass(frozen=True, slots=True)
class Token:
    """kind: `#` formula or number, `@` remark in brackets, `w` word, `p` punctuation. text: as it is written."""

    kind: str
    text: str


_PUNCTUATION = ".,;:!?"
_I_DO = ("think", "believe", "guess", "hope", "get", "find")
_SPACES = r"(?:\s|~|\\[ ,;:!]|\\q?quad(?![A-Za-z])|\\\\(?=\s*$))"
_DOLLARS = re.compile(r"\$\$?([^$]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]")
_WORD = re.compile(r"[A-Za-z]+(?:[-'’][A-Za-z]+)*")
_JOINS = ("and", "or")
_MATH = re.compile(r"\\[A-Za-z]+|\\.|.", re.S)


def tokens(text: str, prose: bool = False) -> list[Token]:
    r"""Words, formulas, remarks and punctuation of a text, in order; nothing of it is lost but spaces.

    prose: whether it stands in `\\text`, where every run of small letters is a word.

    >>> [(t.kind, t.text) for t in tokens(r"so $x+1$ is 2\sqrt{3} (both work).")]
    [('w', 'so'), ('#', '$x+1$'), ('w', 'is'), ('#', '2\\sqrt{3}'), ('@', 'both work'), ('p', '.')]
    """
    found: list[Token] = []
    start = at = depth = 0

    def flush(end: int) -> None:
        chunk = text[start:end]
        if found and found[-1].kind == "w" and (equals := re.match(r"\s*=(?=\s*[^=\s])", chunk)):
            found.append(Token("p", "="))
            chunk = chunk[equals.end() :]
        while head := re.match(rf"{_SPACES}+|[{_PUNCTUATION}](?!\d)", chunk):
            if not head[0].strip(" ~\\\t\n") or head[0][0] not in _PUNCTUATION:
                chunk = chunk[head.end() :]
            else:
                found.append(Token("p", head[0]))
                chunk = chunk[head.end() :]
        tail: list[Token] = []
        while chunk and (foot := re.search(rf"(?:(?<!\\)[{_PUNCTUATION}]|{_SPACES}+)$", chunk)):
            if foot[0] in _PUNCTUATION:
                if foot[0] == "!" and re.search(r"[\w)}]!$", chunk):
                    break
                tail.append(Token("p", foot[0]))
            chunk = chunk[: foot.start()]
        if chunk:
            found.append(Token("#", chunk))
        found.extend(reversed(tail))

    while at < len(text):
        if depth == 0 and (inline := _DOLLARS.match(text, at)):
            flush(at)
            found.append(Token("#", inline[0]))
            at = start = inline.end()
            continue
        if depth == 0 and (command := TEXT_COMMANDS.match(text, at)) and _worded(command[1]):
            flush(at)
            found += tokens(command[1], prose=True)
            at = start = command.end()
            continue
        after_word = bool(found) and found[-1].kind == "w" and not text[start:at].strip()
        alone = not (at and (text[at - 1].isalnum() or text[at - 1] in "\\_^"))
        if (
            depth == 0
            and alone
            and (word := _WORD.match(text, at))
            and (
                _starts_word(word[0], text, word.end())
                or (prose and len(word[0]) > 1 and word[0].islower())
                or (after_word and (is_unit(word[0]) if len(word[0]) == 2 else _is_plain(word[0])))
            )
        ):
            flush(at)
            found.append(Token("w", word[0].replace("’", "'")))
            at = start = word.end()
            continue
        if depth == 0 and text[at] in "([" and (inner := _remark(text, at)) is not None:
            flush(at)
            found.append(Token("@", inner))
            at = start = at + len(inner) + 2
            continue
        piece = _MATH.match(text, at)
        assert piece
        depth = max(depth + (piece[0] in "([{") - (piece[0] in ")]}"), 0)
        at = piece.end()
    flush(at)
    return found


def _worded(text: str) -> bool:
    return any(
        is_word(word) or word.lower() in _JOINS for word in re.findall(r"[A-Za-z]{2,}", text)
    ) and not re.fullmatch(r"\s*\(?[A-Z]{2,}\)?\s*", text)


def _is_plain(run: str) -> bool:
    """Is a run of letters behind a word another one, and no function?"""
    return len(run) > 2 and run.islower() and not FUNCTION.fullmatch(run)


def _starts_word(word: str, text: str, end: int) -> bool:
    if text[end : end + 1].isdigit() or text[end : end + 1] in ("_", "^", "("):
        return False
    if len(word) == 1:
        after = re.match(r" ([a-z]{2,})", text[end:])
        return bool(after) and ((word in "aA" and after[1] not in _JOINS) or after[1] in _I_DO)
    if word == "in" and re.match(r" (?:all|total|sum)\b", text[end:]):
        return True
    if word.isupper() and word.lower() in ("answer", "final", "the", "is"):
        return True
    return is_word(word) or word.lower() in _JOINS or "'" in word


def _remark(text: str, at: int) -> str | None:
    """What stands in a bracket that holds words and no other bracket; null if it is part of a formula."""
    found = re.compile(r"\(([^()]*)\)|\[([^\[\]]*)\]").match(text, at)
    inner = (found[1] if found[1] is not None else found[2]) if found else ""
    return inner if prose_words(inner) and "\\begin" not in inner else None


# ---- the grammar: sentences over the line of marks

_SO = (
    r"(?:(?:and|so|thus|hence|therefore|then|finally|consequently|clearly|indeed|definitely|surely|certainly|well"
    r"|probably|likely|approximately|roughly|about|exactly|precisely|only|just|simply|either"
    r"|i (?:think|believe|guess)(?: that)?"
    r"|in conclusion|in total|it follows that|we (?:get|have|find|obtain|conclude|see)(?: that)?"
    r"|(?:this|which|that) (?:gives|yields|means)(?: that)?|giving|the)(?: ?[,:])? )*"
)
_KIND = (
    r"(?:(?:the|a|an|my|our|its|his|her|their|your|this|that|final|correct|exact|total|only|unique|minimum"
    r"|maximum|such|minimal"
    r"|maximal|smallest|largest|least|greatest|highest|lowest|possible|required|desired|requested|expected|average|mean"
    r"|closed|simplified|remaining|combined|overall|whole|new|old|original|common|general|real|positive|negative"
    r"|integer|numerical|distinct|different) )*"
    r"(?:answers?|ans|results?|solutions?|values?|numbers?|totals?|sums?|products?|differences?|quotients?|ratios?"
    r"|probability|area|volume|mass|weight|perimeter|lengths?|width|height|radius|diameter|distance|measure|angle|slope|equation"
    r"|expression|functions?|polynomial|coefficient|coordinates?|points?|vector|matrix|intervals?|range|domain"
    r"|sets?|minimum"
    r"|maximum|average|mean|median|mode|cost|price|amount|time|speed|rate|percentage|percent|age|remainder"
    r"|quantity|digits?"
    r"|terms?|roots?|integers?|primes?|count|limit|derivative|integral|inverse|factorization|form|fraction|proportion)"
)
#: In what is free to say, these would change what is said.
_AGAINST = (
    r"(?:not|no|nor|never|none|nothing|cannot|can't|[a-z]+n't|wrong|incorrect|false|if|unless|except|excluding|but|else"
    r"|otherwise|fewer|half|twice|double|thrice|minus|plus|times|without|is|are|was|were|equals?|maybe|perhaps|besides"
    r"|possibly|alternatively|instead|rather|almost|nearly|about|around|roughly)"
)
_FREE = rf"(?: ,? ?(?!{_AGAINST}\b)[a-z#@'-]+)*?"
_OF = rf"(?: (?:of|for|to|in|that|such|when|where|with|from|on|at|which|she|he|they|per)\b{_FREE})?"
_IS = (
    r"(?: is| are| equals| is equal to| are equal to| must be| will be| should be| becomes| :| =)(?: (?:exactly"
    r"|just|simply|only))?(?: :)?"
)
_SUBJECT = rf"(?:(?:it|this|that|here)(?: is| equals| takes|'s)|it's|that's|{_KIND}{_OF}{_IS})"
_COUNT = r"(?:there(?: are| is| exist| exists)|we (?:get|have|find)|a total of)(?: exactly| only)?"
_BEYOND = r"(?:more|greater|larger|bigger|higher|above|up|beyond|over|upwards?)"
_BELOW = r"(?:less|fewer|smaller|lower|below|under|down)"
_AT_LEAST = r"at least|no less than|not less than|no fewer than|greater than or equal to|a minimum of"
_AT_MOST = r"at most|no more than|not more than|not greater than|less than or equal to|up to|a maximum of"
_LESS, _MORE = (
    r"(?:strictly )?(?:less|fewer|smaller) than|below|under",
    r"(?:strictly )?(?:greater|more|larger|bigger) than|above",
)
_COMPARED = (
    (_AT_LEAST, r"\ge"),
    (_AT_MOST, r"\le"),
    (_LESS, "<"),
    (_MORE, ">"),
    (r"not equal to|different from|other than", r"\ne"),
)
_ANY_COMPARED = "|".join(pattern for pattern, _ in _COMPARED)
#: Behind the answer: why, for which values (all of them), how often it was counted.
_WHY = (
    r"(?: ?,)? (?:since|because|due to|so that|which means|which comes|(?:by|using) the"
    r"|as (?:required|desired|claimed|shown)|\. i hope it is correct)\b.*"
)
_FOR_ALL = (
    r"(?: ?,)? for(?: (?:all|any|every|each)|(?= integer| real| natural))"
    r"(?: (?:real|positive|non-?negative|natural|whole|integers?|numbers?"
    r"|values?|of))*"
)
_ALL = rf"(?:{_FOR_ALL}(?: (?P<every>#))?)"
_TOTAL = (
    r"(?: ?,)? (?:in total|in all|total|altogether|overall|each|in sum|is attained|(?:are |is )?possible|work"
    r"|respectively|only|exactly|roughly|approximately|approx|i (?:believe|guess|think)|of (?:them|these)|every day"
    r"|per day)"
)
_ANSWER = r" (?:is|are) (?:the|my|our) (?:final |correct )?(?:answers?|results?|solutions?|values?)"
_RATHER = r"(?: ?,)? (?:not|rather than|instead of) #"
_WHEN = r"(?: ?,)? (?P<when>for|where|with|when) (?P<condition>#)"
_AGAIN = (
    r"(?: ?,)? (?:or equivalently|equivalently|i\.? ?e\.?|that is|which is|which equals|or simply) ,? ?(?P<again>#)"
)
_LIST = r"#(?:(?: ?[,;]| and| or| , and| , or|(?: ?[,;])?(?: and)? (?:so|thus|hence|then|therefore|giving)(?: ,)?) #)*"
_NOUNS = r"[a-z][a-z' -]*?(?: per [a-z' -]+?)?"
_VALUE = (
    rf"(?:(?P<rel>{_ANY_COMPARED}) (?P<bound>#)|(?P<beyond>#) (?:or|and) (?P<dir>{_BEYOND}|{_BELOW})"
    rf"|(?P<upward>#) onwards?|(?P<list>{_LIST})(?P<unit> {_NOUNS})??)"
)
_CORE = rf"(?:{_VALUE}|(?P<text>[a-z][a-z' -]*))"
_TAIL = rf"(?P<aside>(?: @)*)(?:{_AGAIN}|{_TOTAL}|{_ALL}|{_ANSWER}|{_RATHER}|{_WHEN})?(?:{_WHY})?(?: ?[.!?])*"
_ANCHORED = re.compile(
    rf".*?(?:[.,;:!?]|(?=so |thus |hence |therefore ))(?: and| so| thus| hence| therefore| ,)* (?:the |my "
    rf"|our )?(?:final |correct )?(?:answers?|result|solution)(?: is| are| :| =)+ {_CORE}{_TAIL}"
)
_SENTENCES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_SO}{_CORE}{_TAIL}",
        rf"{_SO}(?P<name>#)(?: is| are| equals| must be| is equal to)(?: exactly)? {_VALUE}{_TAIL}",
        rf"{_SO}{_SUBJECT} {_VALUE}{_TAIL}",
        rf"{_SO}(?:it(?: is|'s)|this is|(?:the |my |our )?(?:final |correct )*(?:answer|result|solution)(?: is"
        rf"| :)+) {_CORE}{_TAIL}",
        rf"{_SO}{_COUNT} (?P<list>#)(?P<counted> {_NOUNS})??(?P<rest> of them| of these| (?:to|of|for|in|that"
        rf"|which|such that|with)\b{_FREE})?{_TAIL}",
        _ANCHORED.pattern,
        rf"{_SO}(?:the |my |our |a )?(?:final |correct |maximum |minimum |total )*(?:answer|ans|result|solution"
        rf"|total|sum|area|maximum"
        rf"|minimum|probability|count|value)(?: value)? (?:[:=] |(?<=total )of |(?<=value )of |# : )?{_CORE}{_TAIL}",
        rf"{_SO}(?:all|any|every|each)(?: such| real| positive| integers?)* (?P<family>#){_TAIL}",
        rf"(?:{_SUBJECT} )?not # ,? ?but(?: rather)? {_CORE}{_TAIL}",
    )
)


@lru_cache(maxsize=8192)
def read(text: str) -> Extraction:
    r"""What one text states.

    >>> read("The answer is $8$ ways.").answers, read(r"8 \text{ or larger}").answers, read("a fifth of $20$").status
    (('$8$ \\text{ ways}',), ('\\ge 8',), 'unread')
    """
    text = _clean(text)
    if states_nothing(text):
        return Extraction("no_answer", "empty answer")
    if len(text) > MAX_PROSE_CHARS:
        return Extraction("ok", "", (text,))
    bare = re.sub(r"(?i)^(?:(?:the )?(?:final )?answers? (?:is|are)|it (?:is|takes)):? ", "", text.strip(" .*"))
    every = permuted(bare.strip("$"))
    if every or says_base(bare) or compound_quantity(normalise(bare)):
        return Extraction("ok", "", (every or bare,))
    marks = tokens(text)
    if not any(t.kind in "w@" for t in marks):
        return Extraction("ok", "", (text,))
    return _parse(_with_numbers(marks), text)


def _clean(text: str) -> str:
    """Without what only dresses a text: tags of equations, headings, bold, the letter of an option before its value."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\\tag\*? ?\{[^{}]*\}|\\(?:ensuremath|hbox|mbox|text)(?= ?\{[^{}A-Za-z]*\d[^{}A-Za-z]*\})", "", text)
    text = re.sub(r"\\text ?\{( ?\([^{}()]*)\}", r"\1", text)
    text = re.sub(r"\b(?:per cent|sq\.)(?!\w)", lambda m: {"per cent": "percent"}.get(m[0], "sq"), text)
    text = re.sub(r"\b(\d+|[a-z]) choose (\d+|[a-z])\b", r"\\binom{\1}{\2}", text)
    text = re.sub(
        rf"(?i)^(?:#+ )+|(?:{_SPACES}|\\)+$|\s*\?+$|^(?:答案(?:是|为)?|Ответ|Réponse|Respuesta|Antwort)\s*[:：]?\s*"
        rf"|^(?:step|case) \d+: |^no\. (?=\d)",
        "",
        text,
    )
    if text.startswith("**") or " **" in text:
        text = text.replace("**", "")
    return _OPTION.sub("", text)


_OPTION = re.compile(
    r"^(?:\(?[A-E]\)[:.]?\s+|\\text(?:bf|rm)? ?\{ ?\(?[A-E]\)? ?:?\}(?:\\[ ,;:]|\\q?quad|~|\s)*)(?=[-\d\\$])"
    r"|^(?:option|choice)\s+(?=\(?[A-H]\b)",
    re.I,
)


def _with_numbers(marks: list[Token]) -> list[Token]:
    """With numbers in words as figures: `twenty one ways`, `3 dozen`, `minus three`."""
    out: list[Token] = []
    at = 0
    while at < len(marks):
        for end in range(min(len(marks), at + 8), at, -1):
            run = marks[at:end]
            words = " ".join(t.text.strip("$") for t in run)
            plain = all(t.kind == "w" for t in run) or (
                run[0].kind == "#" and len(run) > 1 and all(t.text.lower() in SCALES for t in run[1:])
            )
            if plain and words.lower() not in ("a", "one of") and (value := number_in_words(words)) is not None:
                out.append(Token("#", str(value)))
                at = end
                if len(out) > 1 and out[-2].kind == "#" and out[-2].text.endswith("="):
                    out[-2:] = [Token("#", out[-2].text + out[-1].text)]
                if at < len(marks) and marks[at].text == f"({value})":
                    at += 1
                break
        else:
            if marks[at].text.lower() in ("minus", "negative") and at + 1 < len(marks) and marks[at + 1].kind == "#":
                out.append(Token("#", f"-{marks[at + 1].text}"))
                at += 1
            else:
                out.append(marks[at])
            at += 1
    return out


def _parse(marks: list[Token], text: str) -> Extraction:
    sentences = _SENTENCES
    if len(marks) > MAX_MARKS:
        marks, sentences = marks[-MAX_MARKS:], (_ANCHORED,)
    line = " ".join({"#": "#", "@": "@"}.get(t.kind, t.text.lower()) for t in marks)
    line = re.sub(r"[.!?]+(?: [.!?]+)*$", ".", line)
    formulas = [t.text for t in marks if t.kind == "#"]
    for sentence in sentences:
        found = sentence.fullmatch(line)
        if found and (answers := _answers(found, formulas, marks)):
            return Extraction("ok", "", answers)
    return Extraction("unread", f"{NOT_UNDERSTOOD}: {text[:120]}", (text,))


def _answers(found: re.Match[str], formulas: list[str], marks: list[Token]) -> tuple[str, ...]:
    """The answers of a sentence that was read; none if its unit, its number or a remark in it is not understood."""
    group = found.groupdict()

    def formula(name: str) -> str:
        return formulas[found.string[: found.start(name)].count("#")]

    if not all(_may_be_remarked(t.text, formulas) for t in marks if t.kind == "@"):
        return ()
    if group.get("family"):
        return (formula("family"),) if re.search(r"[<>=]|\\(?:[lg]eq?|in|ne)(?![a-z])", formula("family")) else ()
    name = f"{formula('name')} " if group.get("name") else ""
    if group.get("rel"):
        sign = next(sign for pattern, sign in _COMPARED if re.fullmatch(pattern, group["rel"]))
        return (f"{name}{sign} {formula('bound')}",)
    for side in ("beyond", "upward"):
        if group.get(side):
            sign = r"\le" if re.fullmatch(_BELOW, group.get("dir") or "") else r"\ge"
            return (f"{name}{sign} {formula(side)}",)
    if group.get("list"):
        before = found.string[: found.start("rest")].count("#") if group.get("rest") else 0
        if any(re.search(r"\d", one) for one in formulas[before:][: (group.get("rest") or "").count("#")]):
            return ()
        answer = _list(found, formulas)
        unit = (group.get("unit") or group.get("counted") or "").strip()
        if unit and (not is_unit(unit) or (unit.split()[-1] in SINGULAR and answer.strip("$ ") != "1")):
            return ()
        if unit and (not group.get("counted") or measures(unit)):
            answer = rf"{answer} \text{{ {unit}}}" if "," not in answer else answer
        for one in ("every", "condition"):
            told = formula(one).strip("$ ") if group.get(one) else ""
            aside = group.get("when") == "where" and re.fullmatch(r"([A-Za-z]) ?= ?[-\d.]+", told)
            if told and not (aside and aside[1] not in answer) and not re.fullmatch("[A-Za-z]", told):
                answer = f"{answer}, {told}"
        answers = (f"{name}= {answer}" if name else answer,)
        return (*answers, formula("again")) if group.get("again") else answers
    return (f"{name}= {group['text']}",) if name else (_written(group["text"], marks),)


def _list(found: re.Match[str], formulas: list[str]) -> str:
    first = found.string[: found.start("list")].count("#")
    parts = iter(formulas[first:])
    joined = re.sub(r"(?: ?[,;])?(?: and)? (?:so|thus|hence|then|therefore|giving)(?: ,)? ", ", ", found["list"])
    return re.sub("#", lambda _: next(parts), joined)


def _written(words: str, marks: list[Token]) -> str:
    """Words in the letters in which they are written."""
    count = len(words.split())
    spelt = [t.text for t in marks if t.kind == "w"]
    for at in range(len(spelt) - count + 1):
        if " ".join(spelt[at : at + count]).lower() == words:
            return " ".join(spelt[at : at + count])
    return words


_CORRECTS = re.compile(r"\b(?:answer|actually|better|wrong|or|but|instead|approx\w* -?\d)\b", re.I)
_REMARKS = re.compile(
    r"(?:since|because|as|where|which|i\.?e\.?|e\.?g\.?|note|by|from|using|check|see|after|when|(?:both"
    r"|all)(?: of them)? work|not -?[\d(][^A-Za-z]*|approx(?:imately)?|rounded"
    r"|exact(?:ly)?|simplified)\b.*",
    re.I,
)


def _may_be_remarked(text: str, formulas: list[str]) -> bool:
    """Is it an explanation, a unit, what the answer is not, or the number before it in words?"""
    text = text.strip()
    twice = number_in_words(text)
    return (
        bool(_REMARKS.fullmatch(text) and not _CORRECTS.search(text))
        or is_unit(text.lower())
        or (twice is not None and [str(twice)] == formulas)
    )
