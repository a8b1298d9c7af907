r"""English around mathematics: telling prose from formulas, denials, yes and no."""

from __future__ import annotations

import re

from tasks.domain.grading.quantities import number_in_words

#: Runs of letters that are mathematics although they look like words.
FUNCTION = re.compile(
    "sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|sinh|cosh|tanh|log|ln|lg|exp|max|min|gcd|lcm|mod|pi|sqrt|inf|sup|deg"
    "|det|dim|or|and|frac|dfrac|binom|circ|infty|cup|cap|in|le|ge|ne|pm|mp|theta|alpha|beta|gamma|cdot|times|phi|lambda"
    "|cm|mm|km|kg|ft|lbs?|mph|dx|dy|rad|floor|ceil|infinity|union"
)
#: Short words; any other run of two or three letters is a product or the name of a segment.
_SHORT = re.compile(
    "is|it|of|to|so|we|by|no|if|at|an|as|be|my|he|on|up|do|go|us|me|the|for|are|was|has|had|not|but|you|all|any|can|its"
    "|our|one|two|six|ten|get|let|set|sum|yes|day|odd|new|per|way|how|who|why|out|use|box|red|top|bit|own|now|off|end"
    "|few|may|ans|nan"
)
TEXT_COMMANDS = re.compile(r"\\(?:text|textrm|textbf|textit|mbox|hbox|mathrm|operatorname) ?\{([^{}]*)\}")
_COMMAND = re.compile(r"\\(?:begin|end) ?\{[a-z]+\*?\}|\\[A-Za-z]+")


def prose_words(text: str) -> list[str]:
    r"""Words of a language, as against products of variables and names of points and functions.

    >>> prose_words(r"2xy + 10x + ABCD + \sin x"), prose_words("the answer is 7")
    ([], ['the', 'answer', 'is'])
    """
    bare = _COMMAND.sub(" ", TEXT_COMMANDS.sub(" ", text))
    return [w for w in re.findall(r"[A-Za-z]{2,}", bare) if is_word(w)]


def is_word(run: str) -> bool:
    low = run.lower()
    if FUNCTION.fullmatch(low):
        return False
    if len(run) <= 3:
        return bool(_SHORT.fullmatch(low))
    return not run.isupper() and bool(re.search(r"[aeiouy]", low)) and len(set(low)) > 2


def unwrap_text(text: str) -> str:
    r"""`\text{The answer is } 7` as plain prose; a unit or a single letter in `\text` keeps its wrapper."""

    def unwrap(match: re.Match[str]) -> str:
        is_number = number_in_words(match[1]) is not None
        return f" {match[1]} " if is_number or (prose_words(match[1]) and _sentence(match[1])) else match[0]

    return TEXT_COMMANDS.sub(unwrap, text)


def _sentence(text: str) -> bool:
    return bool(
        re.search(
            r"\b(?:answer|is|are|the|not|or|and|for|all|where|if|so|we|value|than|least|most|since|because)\b",
            text,
            re.I,
        )
    )


_NO_SUCH = re.compile(
    r"(?:no,? )?(?:there (?:is|are|exists?) )?(?:no|none|not any|not exist)(?: such)?(?: [a-z-]+){0,4}(?: exists?)?"
    r"|(?:no,? )?(?:(?:such|these|those|the|an?|any) )*(?:[a-z-]+ ){0,4}(?:(?:do|does) ?n[o']t|can ?not) exist"
    r"|(?:no,? )?(?:it|this|that|there) (?:is not possible|is impossible|(?:do|does) ?n[o']t exist"
    r"(?: any| an?)?(?: such)?(?: [a-z-]+){0,4})"
    r"|dne|impossible"
)
_YES = re.compile(r"\b(?:no (?:more|less|fewer|other)|except|but|unless|none of)\b|\d|\\(?!text|mathrm)")


_NARROWER = re.compile(
    r"\b(?:unique|non-?negative|negative|positive|integer|integral|real|rational|irrational|complex|even|odd"
    r"|prime|finite"
    r"|infinite|non-?zero|non-?trivial|trivial|natural|whole|closed|simple|obvious|common|distinct|equal|known|easy"
    r"|general|small|large|nice|exact)"
)
_NO_STATEMENT = re.compile(
    r"\b(?:idea|clue|answers?|guess|opinion|comment|thoughts?|thanks|results?|response|information|above|below|wonder"
    r"|doubt|problem|way|time|one)\b"
)


def same_denial(text: str, gold: str) -> bool:
    """Does an answer deny all that a gold denies? `no negative solutions` says less than `no solutions`."""
    narrowed, wanted = ({w.replace("-", "") for w in _NARROWER.findall(t.lower())} for t in (text, gold))
    return narrowed <= (wanted or {"real"})


def denies_existence(text: str) -> bool:
    r"""Does an answer say that there is nothing of the kind, in whatever words?

    >>> [denies_existence(t) for t in ("No, such a function does not exist.", r"\text{no such function}", "no more")]
    [True, True, False]
    """
    if len(text) > 120 or _YES.search(_without_delimiters(text)):
        return False
    words = _bare_words(text)
    if _NO_STATEMENT.search(words):
        return False
    return len(words) > 2 and bool(_NO_SUCH.fullmatch(words)) and words != "none"


def _bare_words(text: str) -> str:
    """Words in small letters, without `\\text`, the dollars of formulas and what leads up to an answer."""
    words = re.sub(r"\s+", " ", TEXT_COMMANDS.sub(r"\1", _without_delimiters(text))).strip(" .!*").lower()
    return re.sub(r"^(?:the answer is|answer:|so|therefore|thus|hence),? ", "", words)


def _without_delimiters(text: str) -> str:
    return re.sub(r"\$|\\[()]", "", text)


_AFFIRMS = {"yes": "yes", "true": "yes", "correct": "yes", "no": "no", "false": "no", "incorrect": "no"}
_YES_OR_NO = re.compile(
    r"(?:(?:it|this|that|(?:the )?(?:statement|claim|assertion)) is (?=true|false))?(?P<said>yes|no|true|false"
    r"|correct|incorrect)(?:(?: ?[,.;:!-]+ ?| (?=(?:it|he|she|they|we|you|i|this|that"
    r"|there)\b))(?P<rest>[a-z' ,.-]*))?"
)
_CONDITION = re.compile(
    r"\b(?:if|unless|but|except|only|when|or|maybe|sometimes|depend\w*|however|al?though|perhaps|possibly|probably"
    r"|provided|almost|usually|mostly|partly|not (?:impossible|false|wrong)|n't (?:impossible|false|wrong))\b"
)
_DENIES = re.compile(r"\b(?:not|cannot|no|never|none|impossible|false|neither|nor|without|fails?|wrong)\b")
#: Words with which a gold only says once more that it is so, or that it is not.
_REPEATS = re.compile(
    r"(?:\b(?:it|he|she|they|we|you|this|that|there|is|are|was|were|does|do|did|can|could|will|would|must|has|have|be"
    r"|not|cannot|never|always|possible|impossible|exists?|such|so|true|false|done|an?|the|no)\b|[ ,.-])*"
)


def yes_or_no(text: str, gold: bool = False) -> str:
    """`yes` or `no`, if an answer says one of them and nothing that speaks against it; else empty.

    gold: whatever else is said must say the same in other words, because an answer would have to say it too.

    >>> [yes_or_no(t) for t in ("Yes, it can.", "No, it is not possible.", "No", "Yes, if n is even", "No, it can.")]
    ['yes', 'no', 'no', '', '']
    >>> yes_or_no("Yes, Alice wins", gold=True), yes_or_no("No, he can't", gold=True)
    ('', 'no')
    """
    if len(text) > 120 or not (found := _YES_OR_NO.fullmatch(_bare_words(text))):
        return ""
    rest = (found["rest"] or "").replace("can't", "cannot").replace("n't", " not")
    said = _AFFIRMS[found["said"]]
    against = bool(_DENIES.search(rest)) == (said == "yes") and rest.strip()
    if against or _CONDITION.search(rest) or (gold and not _REPEATS.fullmatch(rest)):
        return ""
    return said
