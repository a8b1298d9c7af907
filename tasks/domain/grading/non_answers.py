"""Sentences that say what the answer is not, or in what relation to a number it stands, and so give no value."""

from __future__ import annotations

import re

from tasks.domain.grading.number_words import CARDINALS

_NOT_ONE = re.compile(
    r"\b(?:otherwise|depending on|depends on|between|neither|nor|nearly|almost|close to|unlikely|and so on|etc"
    r"|just (?:over|under)|or so|and (?:change|counting|more)|give or take|(?:lower|upper) bound|or (?:none|nothing)"
    r"|(?:none|nothing),? or|else|alternatively"
    r"|where the (?:answer|result) (?:is|=))\b"
    r"|[(\[] ?(?:or(?! equivalently)|and|not|else|wrong|incorrect|false|maybe|perhaps|possibly|if|unless|probably)\b"
    r"[^()\d\\]*[)\]]"
    rf"|\d,? (?:possibly|maybe|perhaps|probably|or|and) (?:{'|'.join(CARDINALS)})",
    re.I,
)
_DENIED = re.compile(
    r"\b(?:is|are|was|can)(?: ?not|n't) (?:be )?(?:the|a|an|my|our)?\b ?(?:final |right |correct )?"
    r"(?:answer|solution|result|correct|right|possible|valid)\b"
    r"|\b(?:is|are) (?:impossible|wrong|incorrect|invalid|false)\b"
    r"|\b(?:does|do)(?: not|n't) (?:work|hold|satisfy)\b|\bfails?\b|\bnot not\b"
    r"|\b(?:is|are|was|were|be|seems?) (?:too (?:small|large|big|few|many|low|high)|excluded|disproved|ruled out)\b"
    r"|\d (?:excluded|disproved|ruled out)\b|\bcan(?: ?not|n't) (?:occur|happen|work|hold)\b",
    re.I,
)
#: Nothing but what the answer is not, and words behind which something else may be said.
_NOT_IT = re.compile(r"[\s$*]*(?:(?:it|this|that|the (?:final )?answer)(?: is|'s) |answer: ?)?not\b", re.I)
_BUT = re.compile(r"[,;]|\.\s|\b(?:but|rather|instead|it is|it's)\b", re.I)
_BRACKETS = re.compile(r"[(\[{][^()\[\]{}]*[)\]}]")
#: Behind these a number says what the answer is about, and is not it: `all multiples of 3`, `primes > 7`.
_ABOUT = (
    r"(?:\b(?:multiples?|divisors?|factors?|powers?|squares?|cubes?) of|\b(?:divisible|divided|multiplied) by"
    r"|\b(?:coprime|congruent|relatively prime) to|\b(?:divides?|exceed(?:s|ing)?|without|except(?: for)?|excluding)"
    r"|[<>]|\\(?:le|ge|ne)(?![A-Za-z]))[\s$({\\]*"
)


def names_no_one(text: str) -> bool:
    """Does an answer leave open which value it means?

    >>> names_no_one("7, else 8"), names_no_one("7 or so"), names_no_one("7 or 8")
    (True, True, False)
    """
    return _NOT_ONE.search(text) is not None


def denies(said: str, plain: str) -> bool:
    """Does an answer say what is wrong, or that something is, and no more? plain: with its comparatives read.

    >>> [denies(text, text) for text in ("it is not (1,2)", "not 7 but 8", "7 is too small")]
    [True, False, True]
    """
    if _DENIED.search(said):
        return True
    if (denied := _NOT_IT.match(plain)) is None:
        return False
    rest = plain[denied.end() :]
    while (shorter := _BRACKETS.sub("", rest)) != rest:
        rest = shorter
    return _BUT.search(rest) is None


def is_about(number: str, text: str) -> bool:
    """Does a sentence only say in what relation to a number the answer stands?

    >>> is_about("3", "all multiples of $3$"), is_about("3", "a total of 3")
    (True, False)
    """
    return re.search(_ABOUT + re.escape(number), text, re.I) is not None
