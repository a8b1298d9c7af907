r"""Read the answers in a final-answer region with a small grammar, which rejects unknown text.

A text becomes a line of words, with `#` for each formula or number. The line must match one of the sentences below
completely: each word belongs to a lead-in, the requested quantity, a unit or a condition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tasks.domain.grading.formulas import unit_of
from tasks.domain.grading.texts import FUNCTION, TEXT_COMMANDS, answer_blocks, boxed, is_word, normalise, rewritten
from tasks.domain.scaffolds import AnswerForm

#: Longer answers are not compared.
MAX_ANSWER_CHARS = 1_500
#: Largest number of different texts in one region; a region with more has no single answer.
MAX_ANSWERS = 50
NO_BOX = r"no \boxed{} in the final answer"
CUT_OFF = "truncated inside the answer"
EMPTY, NOT_UNDERSTOOD = "empty answer", "not understood"
#: A line with more words, formulas and punctuation marks is not read.
MAX_MARKS = 60


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading a text. answer: a formula or words, without a sentence. fault: why there is no answer."""

    answer: str
    fault: str = ""


def answer_texts(region: str | None, form: AnswerForm, truncated: bool = False) -> tuple[list[str], bool, str]:
    """Return (the distinct texts of a region, whether they form one list, the reason if there is no text). The texts
    are the contents of the region's boxes. An answer tag without boxes gives its whole text."""
    if region is None:
        missing = "no answer tag" if form == "tag" else "no answer"
        return [], False, "truncated before an answer" if truncated else missing
    tagged = form == "tag" and "<answer>" in region
    blocks = list(dict.fromkeys(answer_blocks(region, unclosed=False))) if tagged else [region]
    texts: list[str] = []
    joined = False
    for block in blocks:
        boxes, joined, cut = boxed(block)
        if cut and truncated:
            return [], False, CUT_OFF
        texts += boxes or ([block] if form == "tag" else [])
    fault = NO_BOX if form == "boxed" and not texts else ""
    return list(dict.fromkeys(texts)), joined and len(blocks) == 1, fault


_PLACEHOLDER = re.compile(
    r"(?:the )?(?:final )?answer(?: here| is)?|your answer(?: here)?|\.{2,}|\?+|-+|_+|n/?a|none(?: given)?|null|nan|idk"
    r"|tbd|unknown|undefined|undetermined|(?:i have )?no (?:idea|clue|answer|guess)|not sure"
    r"|i (?:do ?n[o']t know|can ?not tell)",
    re.I,
)


def is_placeholder(text: str) -> bool:
    """Return whether a text is empty or a placeholder: `?`, `none given`, `I do not know`."""
    plain = re.sub(r"\\(?:text|mathrm|mbox|textbf) ?\{\s*\}", "", normalise(text[:MAX_ANSWER_CHARS]))
    plain = plain.replace(r"\ldots", "...")
    return not re.search(r"[A-Za-z\d]|\\\{ ?\\\}", plain) or bool(_PLACEHOLDER.fullmatch(plain.strip(" .$*:")))


_JOINS = ("and", "or")
#: A command for text with a power of a unit; a bracket without another in it; a word.
_PIECE = re.compile(
    rf"{TEXT_COMMANDS.pattern}(?: ?\^ ?\{{? ?(?P<power>[23]) ?\}}?)?"
    r"|\\[A-Za-z]+|\\.|(?P<word>[A-Za-z]+(?:[-'’][A-Za-z]+)*)|.",
    re.S,
)
#: Punctuation around a formula. An exclamation mark after a formula is a factorial and belongs to the formula.
_PUNCTUATED = re.compile(r"((?:[ ,;:!?]|=(?= ?[^= ])|\.(?!\d))*)(.*?)((?:(?<!\\)[ .,;:?]|(?<![\w)}\\])!)*)", re.S)


def line_of(text: str, formulas: list[str], prose: bool = False) -> str:
    r"""Return a normalised text as words and punctuation, with `#0`, `#1` and so on for its formulas.

    formulas: the list that the formulas are added to. prose: the text is inside `\text`, where every run of lower-case
    letters is a word.

    >>> line_of(r"so x+1 is 2\sqrt{3}.", formulas := []), formulas
    ('so #0 is #1 .', ['x+1', '2\\sqrt{3}'])
    """
    line, formula, depth = "", "", 0
    for piece in _PIECE.finditer(text):
        inner, word, words = piece["text"], piece["word"], ""
        if not depth and inner and any(is_word(w) or w.lower() in _JOINS for w in re.findall(r"[A-Za-z]{2,}", inner)):
            line, formula = _with_formula(line, formula, formulas), ""
            words = line_of(inner + {None: "", "2": " squared", "3": " cubed"}[piece["power"]], formulas, prose=True)
        elif not depth and word and not re.search(r"[^\W]$|\^$", formula):
            after_word = not formula.strip() and line[-1:].isalpha()
            if _reads_as_word(word, text[piece.end() :], after_word, prose):
                words = word.replace("’", "'")
        if words:
            line, formula = f"{_with_formula(line, formula, formulas)} {words}", ""
        else:
            formula += piece[0]
            depth = max(depth + (piece[0] in ("(", "[", "{")) - (piece[0] in (")", "]", "}")), 0)
    return _with_formula(line, formula, formulas).strip()


def _with_formula(line: str, chunk: str, formulas: list[str]) -> str:
    """Return a line with one more formula and the punctuation around it, such as an equals sign before it."""
    found = _PUNCTUATED.fullmatch(chunk)
    assert found
    before, formula, after = found.groups()
    marks = [f"#{len(formulas)}"] if formula.strip() else []
    formulas += [formula.strip()] if marks else []
    return " ".join([line, *before.replace(" ", ""), *marks, *after.replace(" ", "")])


def _reads_as_word(run: str, rest: str, after_word: bool, prose: bool) -> bool:
    """Return whether a run of letters is a word rather than names or a function."""
    plain = len(run) > 2 and run.islower() and not FUNCTION.fullmatch(run)
    if (prose and len(run) > 1 and run.islower()) or (
        after_word and (plain or (len(run) == 2 and unit_of(run) is not None))
    ):
        return True
    return bool(_WORD.match(run + rest)) or (len(run) > 1 and (is_word(run) or "'" in run))


#: Letters that are words because of the text after them; the joining words in any case; words in capitals.
_WORD = re.compile(
    r"[aA] (?!(?:and|or)\b)[a-z]{2}|[A-Za-z] hope\b|in (?:all|total|sum)\b|(?:(?i:and|or)|ANSWER|FINAL)(?![A-Za-z])"
)


# ---- numbers in words

_ONES = (  # noqa: SIM905
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split(" ")  # noqa: SIM905
_BELOW_100 = {word: Fraction(value) for value, word in enumerate(_ONES)}
_BELOW_100 |= {word: Fraction(10 * value) for value, word in enumerate(_TENS, start=2)}
_BELOW_100 |= {f"{ten} {one}": _BELOW_100[ten] + _BELOW_100[one] for ten in _TENS for one in _ONES[1:10]}
SCALES = {"dozen": 12, "trillion": 10**12, "billion": 10**9, "million": 10**6, "thousand": 1000, "hundred": 100}
_PARTS = {"half": 2, "halve": 2, "quarter": 4, "hundredth": 100, "thousandth": 1000}
_ORDINALS = "third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_PARTS |= {word: value for value, word in enumerate(_ORDINALS.split(), start=3)}


def number_in_words(text: str) -> Fraction | None:
    """Return the number that English words spell, or None. `one hundred and one half` may mean 100.5 or 50.5: None.

    >>> number_in_words("minus two thirds"), number_in_words("3 dozen"), number_in_words("zero and a half")
    (Fraction(-2, 3), Fraction(36, 1), Fraction(1, 2))
    >>> number_in_words("two point five"), number_in_words("one and a half million"), number_in_words("two fifth")
    (Fraction(5, 2), Fraction(1500000, 1), None)
    """
    words = re.sub("[-,]", " ", text.lower()).replace("half a ", "half ").split()[:20]
    sign = -1 if words[:1] in (["minus"], ["negative"]) else 1
    words = words[sign < 0 :]
    if not words:
        return None
    value = _with_part(words)
    if value is None and words[-1] in SCALES and (times := _with_part(words[:-1])) is not None:
        value = times * SCALES[words[-1]]
    value = _cardinal(words) if value is None else value
    return None if value is None else sign * value


def _with_part(words: list[str]) -> Fraction | None:
    """Read a decimal (`two point five`), a fraction (`two thirds`) or a mixed number (`two and a half`)."""
    if "point" in words:
        whole, decimals = words[: words.index("point")], words[words.index("point") + 1 :]
        digits = "".join(str(_ONES.index(word)) for word in decimals if word in _ONES[:10])
        value = _cardinal(whole)
        return None if value is None or not decimals or len(digits) < len(decimals) else value + Fraction(f"0.{digits}")
    if "and" in words[1:]:
        start = len(words) - 1 - words[::-1].index("and")
        value, part = _cardinal(words[:start]), _with_part(words[start + 1 :])
        if value is None or part is None or part >= 1 or words[start - 1] in SCALES:
            return None
        return value + part
    *top, name = words or [""]
    part = _PARTS.get(name.removesuffix("s"))
    one = top in (["a"], ["an"], ["one"]) or (not top and name in ("half", "quarter"))
    above = Fraction(1) if one else _cardinal(top) if name.endswith("s") else None
    return None if part is None or above is None else above / part


def _cardinal(words: list[str]) -> Fraction | None:
    """Read a whole number. Words after a scale such as `thousand` must be smaller than it."""
    scale = next((scale for scale in SCALES if scale in words), None)
    if scale is None:
        text = " ".join(words)
        return Fraction(text) if text.isdecimal() else _BELOW_100.get(text)
    above, below = words[: words.index(scale)], words[words.index(scale) + 1 :]
    below = below[below[:1] == ["and"] and len(below) > 1 :]
    decimal = len(above) == 1 and re.fullmatch(r"\d+\.\d+", above[0])
    times = Fraction(above[0]) if decimal else Fraction(1) if above in ([], ["a"]) else _cardinal(above)
    rest = _cardinal(below) if below else Fraction(0)
    return None if times is None or rest is None or rest >= SCALES[scale] else times * SCALES[scale] + rest


_NUMBER_WORD = rf"(?:{'|'.join([*_ONES, *_TENS, *SCALES, *_PARTS])}|minus|negative|an?)s?"
_SPELLED = re.compile(
    r"(?:(?P<twice>\d+) ?\()?(?<![A-Za-z\\])"
    rf"(?P<words>(?:\d+(?:\.\d+)? (?:and )?)?{_NUMBER_WORD}(?:[ -]+(?:and |point )?{_NUMBER_WORD})*)"
    r"(?![A-Za-z])(?P<after>\)| ?\(\d+\))?",
    re.I,
)


def in_digits(text: str) -> str:
    """Return a text in which numbers in words are replaced by digits.

    >>> in_digits("twenty one ways"), in_digits("3 dozen"), in_digits("seven (7)"), in_digits("minus 5")
    ('21 ways', '36', '7', '-5')
    """
    text = re.sub(r"\\text ?\{ ?(-?\d+(?:/\d+)?) ?\}", r"\1", _SPELLED.sub(_digits, text))
    return re.sub(r"\b(?:minus|negative) (?=\d)", "-", text)


def _digits(found: re.Match[str]) -> str:
    """Return the match in digits. Return the match unchanged if its words are no number, or if words and digits
    differ."""
    words, after = found["words"], found["after"] or ""
    spelt = [
        number_in_words(part) for part in ([words] if number_in_words(words) is not None else words.split(" and "))
    ]
    numbers = [value for value in spelt if value is not None]
    if len(numbers) < len(spelt) or numbers[0].denominator == 1 < numbers[-1].denominator:
        return found[0]
    digits = " and ".join(map(str, numbers))
    if found["twice"]:
        return digits if (found["twice"], after) == (digits, ")") else found[0]
    return digits + after if after in ("", ")") else digits if after == f" ({digits})" else found[0]


# ---- the grammar: sentences over a line of words and formulas. Only words that stand here or name a unit are read.

_SO = (
    r"(?:(?:and|so|thus|hence|therefore|then|finally|we (?:get|have|find|obtain)(?: that)?|this gives|it follows that)"
    r"(?: ?[,:])? )*"
)
_ADJECTIVE = (
    r"(?:final|correct|exact|total|only|unique|minimum|minimal|maximum|maximal|smallest|largest|least|greatest|possible"
    r"|required|desired|expected|common|general|real|positive|negative|integer|distinct|different|such|primes?)"
)
_NUMBER_OF = r"numbers? of (?P<of>[a-z]+(?: [a-z]+)?)"
_THING = (
    r"(?:the (?:expression|sum|product|equation|system|function|triangle|circle|square|rectangle|sequence)"
    r"|(?:all )?(?:the |these |such )?(?:(?:possible|real|positive) )*(?:values|solutions|roots|integers)(?: of #)?)"
)
_KIND = (
    rf"(?:(?:the|a|an|my|our|its) )?(?:{_ADJECTIVE} )*(?:answers?|ans|results?|solutions?|values?|numbers?|totals?"
    r"|sums?|products?|differences?|quotients?|ratios?|probability|area|volume|mass|weight|perimeter|lengths?|width|height"
    r"|radius|diameter|distance|measure|angle|slope|equation|expression|functions?|polynomial|coefficient|coordinates?"
    r"|points?|vector|matrix|intervals?|range|domain|sets?|minimum|maximum|average|mean|median|mode|cost|price|time"
    rf"|speed|remainder|integers?|primes?|roots?|count|limit|derivative|integral|inverse|{_NUMBER_OF})"
    rf"(?: (?:of|for) (?:#|{_THING}))?"
)
_IS = r"(?: is| are| equals| is equal to| are equal to| must be| :| =)(?: :)?"
_SUBJECT = rf"(?:(?:it|this|that)(?: is| equals|'s)|{_KIND}{_IS})"
_COMPARED = (
    (r"at least|no less than|not less than|greater than or equal to", r"\\ge"),
    (r"at most|no more than|not more than|less than or equal to", r"\\le"),
    (r"less than", "<"),
    (r"greater than", ">"),
    (r"not equal to", r"\\ne"),
)
_ANY_COMPARED = "|".join(pattern for pattern, _ in _COMPARED)
_THEN = r"(?: ?[,;])?(?: and)? (?:so|thus|hence|then|therefore)(?: ,)?"
_LIST = rf"#(?:(?: ?[,;]| and| or| , and| , or|{_THEN}) #)*"
_VALUE = rf"(?:(?P<rel>{_ANY_COMPARED}) (?P<bound>#)|(?P<list>{_LIST})(?P<unit> [a-z][a-z' -]*?)??)"
#: What a letter may stand for, and the condition for it; real letters need no condition.
_DOMAINS = {
    "integer": r"\mathbb{Z}",
    "positive integer": r"\mathbb{Z}^+",
    "non-negative integer": r"\mathbb{Z}_{\ge 0}",
    "natural number": r"\mathbb{N}",
    **dict.fromkeys(("number", "real", "constant", "value"), ""),
}
_DOMAIN = rf"(?: real(?= (?:number|constant|value)))?(?: (?P<NAME>{'|'.join(_DOMAINS)})s?)?"
_FOR_ALL = (
    r"(?: ?,)? for(?: (?:all|any|every|each|an?)(?: values? of)?| some(?= (?:real )?(?:integer|constant)))?"
    rf"{_DOMAIN.replace('NAME', 'of_every')}(?: (?P<every>#))?"
)
_WHEN = (
    r"(?: ?,)? (?:for|where|with|when) (?P<condition>#)"
    rf"(?:(?: is| are)? (?:an?|any|some){_DOMAIN.replace('NAME', 'of_condition')})?"
)
_TAIL = (
    rf"(?:(?: ?,)? (?:in total|in all|total|altogether|only)|{_FOR_ALL}|{_WHEN}"
    r"| (?:is|are) (?:the|my|our) (?:final |correct )?(?:answers?|solutions?))?(?: \. i hope it is correct)?(?: ?[.!])*"
)
_SENTENCES = tuple(
    re.compile(pattern.replace("#", r"#\d+"), re.I)
    for pattern in (
        rf"{_SO}(?:{_SUBJECT} )?(?:{_VALUE}|(?P<text>[a-z][a-z' -]*)){_TAIL}",
        rf"{_SO}(?P<name>#)(?: is| are| equals| must be| is equal to)(?: exactly)? {_VALUE}{_TAIL}",
        rf"{_SO}(?:there (?:are|is|exists?)|a total of)(?: exactly| only)? (?P<list>#)(?P<counted> [a-z][a-z' -]*?)??"
        rf"(?: to do (?:this|so|it))?{_TAIL}",
    )
)


@lru_cache(maxsize=8192)
def read(text: str) -> Reading:
    r"""Read the answer in one text.

    >>> read("The answer is $8$ ways.").answer, read("at least 8").answer, read("a fifth of $20$").fault
    ('8 \\text{ ways}', '\\ge 8', 'not understood: a fifth of $20$')
    """
    if len(text := text.strip()) < 10 * MAX_ANSWER_CHARS:  # the patterns are slow on a text of a million characters
        text = rewritten(text, _DECORATION).strip()
    if is_placeholder(text):
        return Reading(text, EMPTY)
    if len(text) > MAX_ANSWER_CHARS:
        return Reading(text)
    spelt = normalise(text)
    formulas: list[str] = []
    line = line_of(digits := in_digits(spelt), formulas)
    if not re.search("[A-Za-z]", line):
        return Reading(text if digits == spelt else digits)
    line = re.sub(r"[.!]+(?: [.!]+)*$", ".", line)
    for sentence in _SENTENCES if line.count(" ") < MAX_MARKS else ():
        if (found := sentence.fullmatch(line)) and (answer := _answer(found.groupdict(""), formulas)):
            return Reading(answer)
    return Reading(text, f"{NOT_UNDERSTOOD}: {text[:120]}")


#: Text that is not part of an answer: equation tags, headings, bold, and the letter of an option before its value.
_DECORATION = (
    (r"\\tag\*? ?\{ ?\(?(?:[\d.]*[A-Za-z]?|\*+)\)? ?\}", ""),
    (r"\\(?:ensuremath|hbox|mbox|text)(?= ?\{[^{}A-Za-z]*\d[^{}A-Za-z]*\})", ""),
    (r"\\text ?\{( ?\([^{}()]*)\}", r"\1"),
    (r"\bper cent\b", "percent"),
    (
        r"(?i)(?<!\d)(\d+) ?[(,]? ?(?:in )?base[- ]?(\d{1,2}|[a-z]+) ?\)?\.?$",
        lambda m: rf"{m[1]}_{{\mathrm{{{m[2].lower()}}}}}",
    ),
    (r"\bsq\.(?!\w)", "sq"),
    (r"[,(]\s*\$?([A-Za-z])\$? (?:\\text ?\{)? ?(?:is )?an integer ?\}?\)?\$?\.?$", r", \1 \\in \\mathbb{Z}"),
    (r"\b(\d+|[a-z]) choose (\d+|[a-z])\b", r"\\binom{\1}{\2}"),
    (r"(?i)^ ?(?:(?:#+ )+|(?:答案[是为]?|Ответ|Réponse|Respuesta|Antwort)[ :：]*)", ""),
    (r"(?:\s|~|\\[ ,;:!]|\\q?quad(?![A-Za-z])|\\)+$", ""),
    (
        r"(?i)^ ?(?:\(?[A-E]\)[:.]?\s+|\\text(?:bf|rm)? ?\{ ?\(?[A-E]\)? ?:?\}(?:\\[ ,;:]|\\q?quad|~|\s)*)(?=[-\d\\$])"
        r"|^ ?(?:option|choice)\s+(?=\(?[A-H]\b)",
        "",
    ),
)


def _answer(group: dict[str, str], formulas: list[str]) -> str:
    """Return the answer in a sentence that matched; empty if its unit is not understood."""
    group = {name: re.sub(r"#(\d+)", lambda found: formulas[int(found[1])], text) for name, text in group.items()}
    units = [group.get(name, "").strip().lower() for name in ("unit", "counted", "of")]
    if any(words and unit_of(words) is None for words in units):
        return ""
    name = f"{group['name']} " if group.get("name") else ""
    if group.get("rel"):
        return f"{name}{rewritten(group['rel'].lower(), _COMPARED)} {group['bound']}"
    if not group.get("list"):
        return group["text"]
    answer = re.sub(f"(?i:{_THEN}) ", ", ", group["list"])
    if (unit := units[0] or units[1]) and "," not in answer:
        answer = rf"{answer} \text{{ {unit}}}"
    for restriction in ("every", "condition"):
        letter, domain = group.get(restriction, ""), _DOMAINS.get(group.get(f"of_{restriction}", "").lower())
        if letter and (domain or not re.fullmatch("[A-Za-z]", letter)):
            answer = f"{answer}, {letter}" + (rf" \in {domain}" if domain else "")
    return f"{name}= {answer}" if name else answer
