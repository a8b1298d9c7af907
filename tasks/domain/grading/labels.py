r"""Labels: what a problem asks for, written before its value (`f(2) = 7`, `P(X=1) = 1/3`), and no equation to solve."""

from __future__ import annotations

import re

from tasks.domain.grading.relations import is_closed
from tasks.domain.grading.terms import squeeze

#: Longer texts are no labels.
MAX_LABEL_CHARS = 120
_INDEX = r"(?: ?_ ?(?:\{[^{}]*\}|\w))?'*"
_HEAD = r"(?:\\(?:mathbb|mathrm|text|operatorname) ?\{[A-Za-z ]+\}|\\?[A-Za-z]+)"
_APPLIED = re.compile(rf"(?<![A-Za-z\\]){_HEAD}{_INDEX}(?: ?\^ ?(?:\{{[^{{}}]*\}}|\d))?'* ?[(\[]([^()\[\]]+)[)\]]")
_COMPOSED = re.compile(r"\( ?[A-Za-z] ?\\circ ?[A-Za-z] ?\)(?= ?\()")
#: In brackets behind a name these say which event, set or points are meant.
_EVENT = re.compile(r"[<>=|]|\\(?:le|ge|ne|in|mid|cap|cup|angle|triangle|overline|vec|mathbb)(?![A-Za-z])|^[A-Z' ,]+$")
_QUANTITIES = re.compile(
    rf"\\(?:overline|overrightarrow|overleftrightarrow|widehat|vec|bar|hat|tilde|dot) ?(?:\{{ ?[A-Za-z]+{_INDEX} ?\}}"
    rf"|[A-Za-z](?![A-Za-z])){_INDEX}"
    rf"|\\(?:angle|triangle) ?\{{?[A-Z](?: ?[A-Z]{_INDEX})*\}}?{_INDEX}"
    rf"|\\# ?\{{?[A-Z]\}}?|(?<![A-Za-z\\])[A-Z]{{2,4}}{_INDEX}(?![A-Za-z(])|\[[A-Z]{{3,}}\]"
)
_SIZE = re.compile(r"(?:\||\\[lr]?[vV]ert(?![A-Za-z])|\\\|)")
_OF_ANGLE = re.compile(
    r"\\(?:sin|cos|tan|cot|sec|csc)(?: ?\^ ?\{? ?2 ?\}?)? ?\(? ?(?:\\angle ?)?[A-Z]{1,3}(?![A-Za-z]) ?\)?"
)
_OPERATOR = re.compile(
    r"(?:\\(?:lim|limsup|liminf|max|min|sup|inf|sum|prod|int|gcd|deg|det|dim|arg|Pr)(?![A-Za-z])"
    r"|\\(?:operatorname|mathrm|text) ?\{ ?(?:lim|max|min|sup|inf|gcd|lcm|deg|det|dim|rank|tr|Re|Im) ?\}).+",
    re.S,
)
_RATIO_PART = rf"(?:\\?[A-Za-z]\w*|\\(?:text|mathrm) ?\{{?[A-Za-z ]+\}}?){_INDEX}"
_RATIO = re.compile(
    rf"{_RATIO_PART}(?: ?[:/] ?{_RATIO_PART})+|\\frac ?\{{ ?{_RATIO_PART} ?\}} ?\{{ ?{_RATIO_PART} ?\}}"
)
_EXTREME = re.compile(r"_\\?(?:max|min)$")
_IN_WORDS = re.compile(r"\\(?:text|mathrm) ?\{[A-Za-z ]{3,60}\} ?(?:\\triangle ?)?[A-Z]{0,4}")
_DOT_PRODUCT = re.compile(r"[A-Za-z] ?\\(?:cdot|times) ?[A-Za-z]")


def is_label(text: str) -> bool:
    r"""Is it what a problem asks for and no equation: a ratio of names, a length, a value of a function, a limit?

    >>> [is_label(t) for t in ("V_1:V_2", "|AB|", r"\frac{NO}{BO}", r"\cos A", "|a-b|", "f'(1)", "P(X=1)")]
    [True, True, True, True, True, True, True]
    >>> [is_label(t) for t in (r"\vec a\cdot\vec b", r"\lim a_n", "x+z", "f(x+1)", "|x|+|y|", "2x")]
    [True, True, False, False, False, False]
    """
    text = text.strip()
    if not text or len(text) > MAX_LABEL_CHARS or is_closed(text):
        return False
    if _RATIO.fullmatch(text) or _IN_WORDS.fullmatch(text) or _DOT_PRODUCT.fullmatch(text):
        return True
    if _OPERATOR.fullmatch(text):
        return not re.search(r"[-+]", _inside_out(text))
    bars = _SIZE.split(text)
    if len(bars) == 3 and bars[1].strip() and not bars[0].strip() and bars[2].strip() in ("", "^2", "^{2}"):
        return True
    return is_closed(_values_named(text))


def same_label(one: str, other: str) -> bool:
    r"""Do two labels name the same, however letters and bars are set?

    >>> same_label(r"\Pr(X=1)", "P(X = 1)"), same_label(r"\overline{AB}", "|AB|"), same_label("f(2)", "f(3)")
    (True, True, False)
    >>> same_label(r"m_{\max }", "m"), same_label(r"m_{\max}", r"m_{\min}")
    (True, False)
    """
    one, other = _bare(one), _bare(other)
    return one == other or (
        _EXTREME.sub("", one) == _EXTREME.sub("", other) and not _EXTREME.search(min(one, other, key=len))
    )


def _bare(label: str) -> str:
    label = re.sub(r"\\(max|min)(?![A-Za-z])", r"\1", re.sub(r"\\Pr(?![A-Za-z])", "P", label))
    label = re.sub(
        r"\\(?:overline|overrightarrow|vec|mathbb|mathrm|text|operatorname|[lr]?vert)(?![A-Za-z])", "", label
    )
    sides = re.sub(r"(?<![A-Za-z])\|? ?\{? ?([A-Z]{2}) ?\}? ?\|?(?![A-Za-z])", r"\1", label)
    return squeeze(re.sub(r"[{} ]", "", sides))


def _values_named(text: str) -> str:
    """With 1 for every value that is named: `f(f(2))+AB` as `1+1`."""
    text = _QUANTITIES.sub("1", _OF_ANGLE.sub("1", _sizes(_COMPOSED.sub("f", text))))
    while (shorter := _APPLIED.sub(_value, text)) != text:
        text = shorter
    return text


def _sizes(text: str) -> str:
    r"""With 1 for every length between bars: `|AB|`, `|\vec a|`."""
    return re.sub(r"\|([^|]*)\|", lambda bars: "1" if is_closed(_QUANTITIES.sub("1", bars[1])) else bars[0], text)


def _value(applied: re.Match[str]) -> str:
    """1 for a function of numbers or the probability of an event, the text itself for a function of variables."""
    return "1" if is_closed(applied[1]) or _EVENT.search(applied[1]) else applied[0]


def _inside_out(text: str) -> str:
    """What stands outside all brackets."""
    while (shorter := re.sub(r"\([^()\[\]{}]*\)|\[[^()\[\]{}]*\]|\{[^()\[\]{}]*\}", "", text)) != text:
        text = shorter
    return text
