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


def same_denial(text: str, gold: str) -> bool:
    """Does an answer deny all that a gold denies? `no negative solutions` and `no maximum` say other things than
    `no solutions`."""
    narrowed, wanted = ({*_PARTICULAR.findall(_bare_words(t).replace("-", ""))} for t in (text, gold))
    return narrowed <= (wanted or {"real"})


def denies_existence(text: str) -> bool:
    r"""Does an answer say that there is nothing of the kind?

    >>> [denies_existence(t) for t in ("No, such a function does not exist.", r"\text{no real solutions}", "no more")]
    [True, True, False]
    """
    return len(text) <= 120 and _NO_SUCH.fullmatch(_bare_words(text)) is not None


def _bare_words(text: str) -> str:
    """Words in small letters, without `\\text`, the dollars of formulas and what leads up to an answer."""
    plain = TEXT_COMMANDS.sub(r"\1", re.sub(r"\$|\\[()]", "", text))
    words = re.sub(r"\s+", " ", plain).strip(" .!*").lower()
    return re.sub(r"^(?:the answer is|answer:|so|therefore|thus|hence),? ", "", words)


_AFFIRMS = {"yes": "yes", "true": "yes", "correct": "yes", "no": "no", "false": "no", "incorrect": "no"}
_WHO = rf"(?:it|this|that|there|he|she|they|we|you|(?:such )?an? {_NOUN})"
_VERB = "(?:is|are|does|do|can|could|will|must|has|have)"
#: What says once more that it is so, and that it is not.
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
    """`yes` or `no`, if a text says one of them and nothing else than the same once more; else empty.

    >>> [yes_or_no(t) for t in ("Yes, it can.", "No, it is not possible.", "No", "Yes, if n is even", "No, it can.")]
    ['yes', 'no', 'no', '', '']
    """
    found = _YES_OR_NO.fullmatch(_bare_words(text)) if len(text) <= 120 else None
    if found is None:
        return ""
    meant = _AFFIRMS[found["first"]]
    return meant if found["rest"] is None or re.fullmatch(_AGAIN[meant], found["rest"].strip()) else ""
