r"""The text of a completion before it is parsed: its visible part, its boxes and tags, and the normal form of LaTeX.

Invisible text (comments, phantoms, white text, hidden elements, invisible characters) is ignored. Tags in invisible
text earn no reward, and answers in it are not graded. Struck-out text is visible, but it is no answer.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

#: Characters that print nothing and take no space: format and control characters, fillers, variation selectors, tags.
_INK_FREE = (
    "\x00-\x08\x0e-\x1f\x7f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
_CHARACTERS = re.compile(f"[{_INK_FREE}]+")
_HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)|\\iffalse(?![A-Za-z]).*?(?:\\fi(?![A-Za-z])|\Z)|(?m:^[ \t]*%[^\n]*)"
    r"|<(?P<tag>[a-z]{1,9})\b[^<>]{0,200}?(?:\bhidden\b|display: ?none)[^<>]{0,200}>.*?(?:</(?P=tag)>|\Z)",
    re.S,
)
#: A text without any of these hides nothing. Testing for them takes a tenth of the time of removing hidden text.
_HIDING = ("<!--", r"\iffalse", "%", "hidden", "none")
_WHITE = r"\s*\{\s*white\s*\}"
_UNSEEN = re.compile(rf"\\(?:(?:[hv]?phantom|label|textcolor{_WHITE})\s*(?P<argument>\{{)|color{_WHITE})")
_STRUCK = re.compile(
    r"(?<![\w$}~])~~(?=[^\s~])[^~\n]{1,200}(?<=[^\s~])~~(?![\w$\\{~])|<(s|del|strike)>[^<]{0,500}</\1>"
    r"|\\(?:sout|xout|st|[bx]?cancel) ?\{[^{}]*\}"
)
#: Markup without meaning: elements; macros with lengths and colours; fonts, boxes, delimiters and spaces.
_DRESSING = re.compile(
    r"</?[A-Za-z]{1,9}\b[^<>]{0,200}>"
    r"|\\(?:[hv]space\*?|(?:text)?color|rule\s*\{[^{}]*\})\s*\{[^{}]*\}"
    r"|\\(?:(?:text|math)[a-z]*|[mhf]box|boxed|emph|(?:under|over)line|operatorname|left|right|strut|displaystyle)\b"
    r"|\\(?:q?quad|(?:thin|en)space|[lc]?dots)\b|\\[ ,;:!]"
)


def visible(text: str) -> str:
    r"""Return the text without its invisible parts. An unclosed comment hides everything after it.

    >>> visible("7<!-- or 8 -->"), visible(r"\boxed{\phantom{7}}"), visible("1\u200b7"), visible("% 7\n8")
    ('7', '\\boxed{}', '17', '\n8')
    >>> visible(r"\boxed{\color{white}7}8"), visible("50% of 8"), visible("<b hidden>7</b>8")
    ('\\boxed{}8', '50% of 8', '8')
    """
    text = _CHARACTERS.sub("", text)
    if any(mark in text for mark in _HIDING):
        text = _HIDDEN.sub("", text)
    out, end = [], 0
    while match := _UNSEEN.search(text, end):
        out.append(text[end : match.start()])
        stop = closing(text, match.end())
        end = len(text) if stop is None else stop + (match["argument"] is not None)
    return "".join(out) + text[end:]


def without_struck(region: str) -> str:
    return _STRUCK.sub("", region)


def has_content(text: str) -> bool:
    """Return whether a letter, digit or mathematical sign remains after removing spaces and decoration."""
    plain = _DRESSING.sub("", html.unescape(text))
    ink = any(c.isalnum() or (not c.isascii() and unicodedata.category(c) == "Sm") for c in plain)
    return ink or r"\{" in plain


_BRACES = re.compile(r"\\.|[{}]", re.S)


def closing(text: str, start: int) -> int | None:
    r"""Return the position at which the brace that is open at `start` closes, or None. `\{` is no brace."""
    depth = 0
    for match in _BRACES.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth < 0:
            return match.start()
    return None


def answer_blocks(text: str, unclosed: bool = True) -> list[str]:
    """Return the contents of all `<answer>` tags. unclosed: include a tag that is not closed."""
    closed, _, rest = text.rpartition("</answer>")
    _, opened, last = rest.partition("<answer>")
    return re.findall("<answer>(.*?)</answer>", f"{closed}</answer>", re.S) + ([last] if opened and unclosed else [])


_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*")
_NESTED = re.compile(rf"[\s$]*{_BOX.pattern}\{{")
_BARE = re.compile(r"[^\s$]+?(?=,?\\boxed|[\s$]|$)")
_PERCENT = re.compile(r"\s*\\?%")
_SPACE = r"(?:[\s$,;]|\\[,;:! ()\[\]]|\\q?quad(?![A-Za-z]))*"
_SEPARATOR = re.compile(
    rf"{_SPACE}(?:and|or|\\(?:text|mbox|textrm|mathrm) ?\{{[ ,;]*(?:and|or) ?\}})?{_SPACE}(?:[A-Za-z](?:_\d)? ?= ?)?"
)
#: Longest text that separates two boxes of one list, and the longest part of a sentence beside a box, in characters.
MAX_SEPARATOR, MAX_SENTENCE = 40, 300
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)|\n\s*\n")
_NOT = (
    r"(?:\b(?:not|never|neither|nor|cannot|except|without|instead of|rather than|(?:anything|all|nothing) but|wrong"
    r"|incorrect|false|impossible)\b|n't\b)"
)
_RELATED = (
    r"(?:pm|mp|n?eq?|not|l[et]q?|g[et]q?|(?:not)?in|cdot|times|div|cup|setminus|log|ln|sin|cos|tan|frac|sqrt|pi)"
    r"(?![A-Za-z])"
)
_OTHER = r"(?:or|and)\b[\s$]*(?:[A-Za-z](?:_\d)? ?= ?)?"
#: What belongs to the answer before a box: a denial in its clause, another value, an operation in its formula.
_BEFORE_BOX = re.compile(
    rf"{_NOT}(?!.*[,;:\n].*(?:\b(?:is|are|get|gives?|have|obtain|answer|so|hence|thus|therefore)\b|=)).*$"
    rf"|\S*[\d)}}]\$?,? {_OTHER}$"
    rf"|[^\s$]* ?(?:\\{_RELATED}|[<>≠≤≥±])[\s$]*$"
    r"|[^\s$]*(?:[-+/^]|\d(?:\\[,;!])?|[({|][^\s$)]*,|(?<![A-Za-z])[A-Za-z]|\w\*|[\^_]\{)$"
    r"|[^\s$]*\\(?:frac|sqrt|binom)[^\s$]*$"
    r"|\$-?\d[^\s$]*, ?$",
    re.S | re.I,
)
#: What belongs to the answer after a box: an operation or text in its formula, another value, a condition, a denial.
_AFTER_BOX = re.compile(
    r"(?:[\^_|}]|\((?![a-z]{2})|(?:[.,]|\\,|\{,\}) ?-?\d|[\da-z](?![a-z])"
    r"| ?[-+/] ?(?=[\d\\]|[a-z]\b)|\*(?=[\w\\(])| *<(?![/a-z!])| *[>≠≤≥±]"
    rf"| *\\(?:{_RELATED}|text|mathrm|mbox))[^$\n]*"
    rf"|[\s$]*{_OTHER}[-\d\\][^.\n]*"
    r"|[\s$]*(?:(?:hundred|thousand|million|billion|trillion|dozen)\b|(?:if|unless)\b[^.\n]*)"
    rf"|[^.,;\n]*{_NOT}",
    re.I,
)


def boxed(text: str, beside: bool = True) -> tuple[list[str], bool, bool]:
    r"""Return (distinct contents of all `\boxed`, whether they form one list, whether the last is unclosed).

    beside: what belongs to the answer beside its box is part of it.

    >>> boxed(r"\boxed{\frac{1}{2}} and \boxed{3}")
    (['\\frac{1}{2}', '3'], True, False)
    >>> boxed(r"It is not \boxed{\boxed{7}}."), boxed(r"$x=-\boxed{7}^2$")
    ((['not 7'], False, False), (['x=-7^2'], False, False))
    """
    found: list[str] = []
    gaps: list[str] = []
    end, cut = 0, False
    boxes = [*_BOX.finditer(text)]
    for match, following in zip(boxes, [*(box.start() for box in boxes[1:]), len(text)], strict=False):
        start = match.end()
        if match.start() < end:
            continue
        gap = text[max(end, match.start() - MAX_SEPARATOR) : match.start()]
        gaps.append(gap if match.start() - end <= MAX_SEPARATOR else "…")
        sentence = _SENTENCE_END.split(text[max(end, match.start() - MAX_SENTENCE) : match.start()])[-1]
        before = _BEFORE_BOX.search(sentence) if beside else None
        if text[start : start + 1] != "{":
            bare = _BARE.match(text, start)
            inner = bare[0].rstrip(".,") if bare else ""
            inner = inner.rstrip(")") if inner.count(")") > inner.count("(") else inner
            found.append((before[0] if before else "") + inner)
            end = start + len(inner)
            continue
        stop = closing(text, start + 1)
        cut = stop is None
        if stop is None:  # a box that is not closed ends with its line, without final punctuation
            stop, end = start + max(1, len(text[start:].partition("\n")[0].rstrip("$. "))), len(text)
        else:
            end = stop + 1
        inner = text[start + 1 : stop]
        for _ in range(3):  # a box that holds only another box
            nested = _NESTED.match(inner)
            last = closing(inner, nested.end()) if nested else None
            if nested and (last is None or not inner[last + 1 :].strip(" $")):
                inner = inner[nested.end() : last]
        rest = "" if cut else text[end : min(following, end + MAX_SENTENCE)]
        after = _AFTER_BOX.match(rest) if beside and not _SEPARATOR.fullmatch(rest) else None
        after = _PERCENT.match(rest) or after
        found.append((before[0] if before else "") + inner + (after[0] if after else ""))
    commas = len(found) > 1 and all(gap.strip() == "," for gap in gaps[1:])
    if commas and gaps[0].endswith("(") and text[end : end + 1] == ")":
        return [f"({','.join(found)})"], False, cut
    joined = len(found) > 1 and all(_SEPARATOR.fullmatch(gap) for gap in gaps[1:])
    return list(dict.fromkeys(found)), joined, cut


def before_boxes(text: str) -> str:
    """Return the text before the first box; empty if there is no box."""
    before, *boxes = _BOX.split(text, maxsplit=1)
    return before if boxes else ""


_STATED = re.compile(
    r"(?:^[ \t]*####|\banswer\b[*\s]*(?:\bis\b\s*:?|:))[ \t*]*(?P<answer>[^\n]+?)(?=\.(?:\s|$)|$)", re.M | re.I
)


def final_answer(text: str) -> tuple[str, str | None]:
    r"""Return (preceding text, final-answer region) of a completion without a prescribed format. If there is a
    `\boxed{}`, the region is the whole text; else the `<answer>` tags; else the text after the last `####`, `answer is`
    or `answer:`.

    >>> final_answer("3 + 4 = 7. The answer is 7. Done"), final_answer("6*3\n#### 18"), final_answer("It may be 7.")
    (('3 + 4 = 7. The ', '7'), ('6*3\n', '18'), ('It may be 7.', None))
    """
    if _BOX.search(text):
        return before_boxes(text), text
    if blocks := answer_blocks(text):
        return text.partition("<answer>")[0], "\n".join(f"<answer>{block}</answer>" for block in blocks)
    stated = list(_STATED.finditer(text))
    return (text[: stated[-1].start()], stated[-1]["answer"].strip("* \t\r")) if stated else (text, None)


# ---- the normal form of LaTeX

#: Names in LaTeX or ASCII, each followed by the characters of Unicode and the commands that it stands for.
_SPELLINGS = r"""
- − – — ‐ ‑ ﹣  * ∗  / ÷ ∕ ⁄  " “ ”  ' ’ ‘ ′  '' ″  . 。  ( ⟨ langle  ) ⟩ rangle  < lt  > gt  \% ％  ^{\circ} ° º degree
\frac dfrac tfrac cfrac nicefrac sfrac  \binom dbinom tbinom  \ldots … dots dotsc dotsb cdots  \times ×  \cdot ⋅ · ∙
\pm ±  \mp ∓  \le ≤ ⩽ leq leqslant leqq  \ge ≥ ⩾ geq geqslant geqq  \ne ≠ neq  \approx ≈  \in ∈  \cup ∪  \cap ∩
\emptyset ∅ Ø varnothing empty  \infty ∞  \to →  \Rightarrow ⇒  \therefore ∴  \lfloor ⌊  \rfloor ⌋  \lceil ⌈  \rceil ⌉
\mathbb{R} ℝ  \mathbb{Z} ℤ  \mathbb{N} ℕ  \alpha α  \beta β  \gamma γ  \delta δ  \epsilon ε  \zeta ζ  \eta η  \theta θ
\iota ι  \kappa κ  \lambda λ  \mu µ μ  \nu ν  \xi ξ  \omicron ο  \pi π  \rho ρ  \sigma σ  \tau τ  \upsilon υ  \phi φ
\chi χ  \psi ψ  \omega ω  \Gamma Γ  \Delta Δ  \Theta Θ  \Lambda Λ  \Xi Ξ  \Pi Π  \Sigma Σ  \Upsilon Υ  \Phi Φ  \Psi Ψ
\Omega Ω
"""
#: The name of a command is followed by a space, unless arguments follow it.
_NAMES = {
    other: name + " " * (name[-1].isalpha() and name not in (r"\frac", r"\binom"))
    for name, *others in map(str.split, re.split("  |\n", _SPELLINGS.strip()))
    for other in others
}
_ASCII = str.maketrans({other: name for other, name in _NAMES.items() if not other.isascii()})
_SYNONYMS = "|".join(filter(str.isascii, _NAMES))
_TEXT = r"\\(?:text|mathrm) ?\{ ?"
RENAMED = (
    (r"(?:^[\s$(]*|= ?)~|(?<=\s)~(?=[-\d.$])", r"\\sim "),
    (r"(?<=\d) ?(?:, ?\\!|\{, ?\}) ?(?=\d{3}(?!\d))|(?<=\d)\\,(?=\d{3}(?!\d))", ""),
    (r"^[ $]*\\\\(?=[A-Za-z])", r"\\"),
    (
        r"</?(?:b|i|em|strong|p|span|sub|sup|br|div|u) ?/?>"
        r"|\\(?:tiny|small|normalsize|[lL]arge|LARGE|[hH]uge|displaystyle|textstyle|limits|nolimits|mathstrut|strut|bf"
        r"|q?quad|hfill|hspace\{[^}]*\}|newline)(?![A-Za-z])|(?<!\\)\\[,;:!\s>]|\\(?:text|mathrm) ?\{[ .,;]*\}|~",
        " ",
    ),
    (
        r"\\(?:color|textcolor|colorbox) ?\{\w+\}|\\bbox ?(?:\[[^\[\]]*\])?(?=\{)|\\(?:boxed|fbox) ?(?=\{)"
        r"|\\(?:left|right|middle|[bB]igg?[lr]?)(?![A-Za-z])\s*\.?",
        "",
    ),
    (r'^ ?"([^"]*)" ?$', r"\1"),
    (r"(?<![\^_{])(?<![\^_] )\\underline ?(?=\{)", ""),
    (r"\\(?:textnormal|textit|textsf|texttt|emph)(?= ?\{)", r"\\text"),
    (r"\\(?:mathrm|operatorname|text) ?\{ ?((?:arc)?(?:sin|cos|tan)h?|cot|sec|csc|ln|log|exp) ?\}", r"\\\1 "),
    (r"\\(?:mathrm|rm|operatorname) ?(?:\{([eid])\}| ([eid]))|\\text ?\{(e)\}", lambda m: f" {m[1] or m[2] or m[3]} "),
    (rf"(?<=\d)(?: ?\^ ?\{{? ?(?:{_TEXT})?)?(?:st|nd|rd|th) ?\}}{{0,2}}(?![A-Za-z])", ""),
    (r"\{ ?([^{}]+?) ?\\choose ?([^{}]+?) ?\}", r"\\binom{\1}{\2}"),
    (r"\{ ?([^{}]+?) ?\\over ?([^{}]+?) ?\}", r"\\frac{\1}{\2}"),
    (r"(?<![A-Za-z\\])n?C ?\( ?(\w{1,9}) ?, ?(\w{1,9}) ?\)", r"\\binom{\1}{\2}"),
    (r"\\mathbb ([A-Z])(?![A-Za-z])", r"\\mathbb{\1}"),
    (r"\(mod ([^()]+)\)|\\p?mod ?(\d{1,9})(?![\d.])", r"\\pmod{\1\2}"),
    (r"\.{3,}", r"\\ldots "),
    (rf"\\({_SYNONYMS})(?![A-Za-z])", lambda m: _NAMES[m[1]]),
    (r"(?<![A-Za-z\\])(?:infinity|infty|inf)(?![A-Za-z])", r"\\infty "),
    (
        r"(?<![A-Za-z\\])(pi|theta|alpha|beta|gamma|lambda|delta|epsilon|omega|sigma|phi|rho|tau|mu)(?![A-Za-z])"
        r"|(?<![A-Za-z\\])(sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|ln|exp|gcd|lcm|max|min)(?= ?[({\d]"
        r"| [a-z]\b)",
        r"\\\1\2 ",
    ),
    (r"(?<![A-Za-z\\])\\?sqrt ?(\[\d\])? ?\(([^()]*)\)", r"\\sqrt\1{\2}"),
    (r"(?<![A-Za-z\\])sqrt(?=[ \d{])", r"\\sqrt"),
    (r"(?<=[\])]) ?U ?(?=[\[({])", r"\\cup "),
    (r"\\(?:\\ ?\[ ?-?[\d.]+ ?(?:pt|e[mx]|[cm]m|in) ?\]|cr(?![A-Za-z]))", r"\\\\"),
    (r"(?<=\d) ?\^ ?(?:o(?![A-Za-z])|\{ ?o ?\})|\^\s*\\circ(?![A-Za-z])", r"^{\\circ}"),
    (r"(?<![\d'])(\d{1,3})((?:'\d{3})+)(?![\d'])", lambda m: m[0].replace("'", "")),
    (rf"{_TEXT}([0-9A-F]+)\}}(?= ?_)", r"\1"),
    (r"(\\(?:max|min|gcd|sup|inf)) ?\\\{([^{}]*)\\\}", r"\1(\2)"),
    (r"^( ?\\\{[^|:]+?) ?(?:\\mid(?![A-Za-z])|[|:])(?=.*\\\} ?$)", r"\1 :"),
    (
        rf"(?:\\frac ?\{{ ?)?{_TEXT}([A-Za-z]+) ?\}} ?(?:/|\}} ?\{{) ?{_TEXT}([A-Za-z]+) ?\}}(?: ?\}})?",
        r"\\text{ \1/\2}",
    ),
    (r"\\(?:mathbf|boldsymbol|bm) ?\{(\w)\}( ?\\times ?)\\(?:mathbf|boldsymbol|bm) ?\{(\w)\}", r"\\vec{\1}\2\\vec{\3}"),
    (r"\\(?:mathbf|mathit|boldsymbol|bm|mathsf)\s*(?:\{([A-Za-z0-9]+)\}|(?=\{))", r"\1"),
    (r"(\\in ?)\\?([RZNQC])(?![A-Za-z])|\\([RZNQC])(?![A-Za-z])", r"\1\\mathbb{\2\3}"),
    (r"\\[()\[\]]|(?<!\\)\$", " "),
)


#: Names of options or points: a letter or a Roman numeral, perhaps in brackets.
_LETTER = r" ?\(?(?:[A-Za-z]|[IVX]{2,4})\)?"
_LETTERS = rf"{_LETTER}(?: ?(?:,|;|,? and){_LETTER})+ ?"


@lru_cache(maxsize=8192)
def normalise(text: str) -> str:
    r"""Return the normal form of a text: ASCII and LaTeX without delimiters and without commands for size or spacing.

    >>> normalise("$x²−½$"), normalise(r"\left( \dfrac12,\, 3\right)")
    ('x^{2}-\\frac{1}{2}', '( \\frac{1}{2}, 3)')
    >>> normalise("**1{,}234**."), normalise("√(2+π)")
    ('1234', '\\sqrt{2+\\pi }')
    >>> normalise(r"\begin{align*} x &= 3+4 \\ &= 7 \end{align*}"), normalise(r"\begin{cases}x=1\\y=2\end{cases}")
    ('x = 3+4 = 7', 'x=1, y=2')
    """
    text = rewritten(rewritten(_ascii(text), RENAMED), _ARGUMENTS)
    return rewritten(text.strip(), _WHOLE).strip()


def rewritten(text: str, table: Iterable[tuple[str, Any]]) -> str:
    """Return the text after replacing each pattern of a table, in order."""
    for pattern, replacement in table:
        text = re.sub(pattern, replacement, text)
    return text


def _braced(found: re.Match[str]) -> str:
    return found[1] + (found[2] or "") + (f"{{{found[3]}}}" if found[3] else "")


def _one_line(found: re.Match[str]) -> str:
    """Return the lines of a formula as one line. Join a line that continues the one before it; list other lines."""
    lines = [re.sub(r"\s*(?<!\\)&\s*", " ", line).strip(" ,") for line in found["lines"].split(r"\\")]
    goes_on = r"\n(?=[-+=<>]|\\(?:le|ge|approx|cdot|times|equiv)(?![A-Za-z]))"
    return re.sub(goes_on, " ", "\n".join(filter(None, lines))).replace("\n", ", ").strip()


_GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_ONE_TOKEN = r"(\d|[A-Za-z]|\\[A-Za-z]+)"
#: Formulas of several lines; powers; missing braces around arguments of one token (`\frac12`, `\frac {1}2`, `\sqrt2`).
_ARGUMENTS = (
    (
        r"(?s)^\s*\\begin ?\{(?P<name>(?:align(?:ed|at)?|equation|gather(?:ed)?|split|multline)\*?|cases(?=\}[^&]*$))\}"
        r"(?P<lines>(?:(?!\\begin).)*?)\\end ?\{(?P=name)\}\s*$",
        _one_line,
    ),
    (r"(?<=[\w)])\*\*(?=[\w({])", "^"),
    (r"\*\*|`", ""),
    (r"([\^_]) ?(-?\d*\.\d+|-?\d{2,}|-\d|-[A-Za-z])", r"\1{\2}"),
    (rf"(\\(?:frac|binom|sqrt))(?![A-Za-z])\s*(\[[^\]]*\])?\s*(?:(?=\{{)|{_ONE_TOKEN})", _braced),
    (rf"(\\(?:frac|binom))({_GROUP})\s*(?:(?=\{{)|{_ONE_TOKEN})", _braced),
)
IMPLIES = re.compile(r"(?:\\(?:Rightarrow|implies|Longrightarrow|therefore)(?![A-Za-z])|(?<![<>=])=>)")
#: Removed from a whole text: quotes, emphasis, a command around it, an implication sign before it.
_WHOLE = (
    (r"\s+|\\\\\s*$", " "),
    (r"^'([^']+)'$|^\*{1,2}([^*_]+)\*{1,2}$|^_{1,2}([^*_]+)_{1,2}$", r"\1\2\3"),
    (rf"^\\(?:text|textrm|textbf|mathrm|mbox) ?\{{((?=.*[\d\\])(?:[^{{}}]|{_GROUP})*|{_LETTERS})\}} ?$", r"\1"),
    (r"^[ ,;:]+|(?:(?<!\\)[ .,;:]|(?<![\w)}!\\])!)+$", ""),
    (rf"^(?: *(?:{IMPLIES.pattern}|->|\\to(?![A-Za-z])))+(?= *\S)", ""),
)


def _compatible(text: str) -> str:
    return unicodedata.normalize("NFKC", text).replace("−", "-")


_ROOTS = {"√": "", "∛": "[3]", "∜": "[4]"}
_WRITTEN_OUT = (
    ("[¹²³ªʰ-ʸˠ-ˤᴬ-ᵡᶛ-ᶿⁱ⁰-ⁿ]+", lambda m: f"^{{{_compatible(m[0])}}}"),
    ("[₀-ₜᵢ-ᵪ]+", lambda m: f"_{{{_compatible(m[0])}}}"),
    ("[¼-¾⅐-⅞↉]", lambda m: r"\frac{{{}}}{{{}}}".format(*_compatible(m[0]).split("⁄"))),
    (r"([√∛∜]) *(\d+(?:\.\d+)?)?", lambda m: rf"\sqrt{_ROOTS[m[1]]}" + (f"{{{m[2]}}}" if m[2] else " ")),
)


def _ascii(text: str) -> str:
    if text.isascii():
        return text
    text = rewritten(text, _WRITTEN_OUT).translate(_ASCII)
    return "".join(c if c.isascii() else unicodedata.normalize("NFKC", c) for c in text)


_EMPTY_ARGUMENT = re.compile(
    r"\\(?:frac|binom)\s*(?:\{[^{}]*\}\s*)?(?:\{\s*\}|$)|\\sqrt\s*(?:\[[^\]]*\])?\s*(?:\{\s*\}|$)"
    r"|[\^_]\s*(?:\{\s*\}|$)"
)


def repaired(text: str) -> str | None:
    """Return a normalised text with the missing braces added at its end; None if the braces are still unbalanced."""
    bare = re.sub(r"\\[{}]", "", text)
    missing, rounds = (sum(bare.count(a) - bare.count(b) for a, b in pairs) for pairs in (["{}"], ["()", "[]"]))
    text = text + "}" * missing if missing >= 0 else re.sub(rf"( *\}}){{{-missing}}} *$", "", text)
    swapped = text.startswith("]") or text.endswith("[")
    open_ends = text.count(r"\{") != text.count(r"\}") or text.count(r"\begin{") != text.count(r"\end{")
    return None if (rounds and not swapped) or open_ends or _EMPTY_ARGUMENT.search(text) else text


def split(text: str, separator: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Return the parts between separators outside all brackets, and the separators."""
    parts, marks, depth, start = [], [], 0, 0
    if not separator.search(text):
        return [text.strip()], []
    for found in re.finditer(rf"(?P<mark>{separator.pattern})|[(\[{{]|[)\]}}]", text):
        if found["mark"] is None:
            depth = max(depth, 0) + (1 if found[0] in "([{" else -1)
        elif depth <= 0:
            parts.append(text[start : found.start()].strip())
            marks.append(found[0])
            start = found.end()
    return [*parts, text[start:].strip()], marks


#: Runs of letters that look like words but belong to formulas.
FUNCTION = re.compile(
    "sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|sinh|cosh|tanh|log|ln|lg|exp|max|min|gcd|lcm|mod|pi|sqrt|inf|sup|deg"
    "|det|dim|or|and|frac|dfrac|binom|circ|infty|cup|cap|in|le|ge|ne|pm|mp|theta|alpha|beta|gamma|cdot|times|phi|lambda"
    "|cm|mm|km|kg|ft|lbs?|mph|dx|dy|rad|floor|ceil|infinity|union"
)
#: Short words. Any other run of two or three letters is a product or the name of a segment.
_SHORT = re.compile(
    "is|it|of|to|so|we|by|no|if|at|an|as|be|my|he|on|up|do|go|us|me|the|for|are|was|has|had|not|but|you|all|any|can|its"
    "|our|one|two|six|ten|get|let|set|sum|yes|day|odd|new|per|way|how|who|why|out|use|box|red|top|bit|own|now|off|end"
    "|few|may|ans|nan"
)
TEXT_COMMANDS = re.compile(r"\\(?:text|textrm|textbf|textit|mbox|hbox|mathrm|operatorname) ?\{(?P<text>[^{}]*)\}")
_COMMAND = re.compile(r"\\(?:begin|end) ?\{[a-z]+\*?\}|\\[A-Za-z]+")


def prose_words(text: str) -> list[str]:
    """Return the words of a text, without products of variables and without names of points or functions."""
    bare = _COMMAND.sub(" ", TEXT_COMMANDS.sub(" ", text))
    return [w for w in re.findall(r"[A-Za-z]{2,}", bare) if is_word(w)]


def is_word(run: str) -> bool:
    low = run.lower()
    if FUNCTION.fullmatch(low):
        return False
    if len(run) <= 3:
        return bool(_SHORT.fullmatch(low))
    return not run.isupper() and bool(re.search(r"[aeiouy]", low)) and len(set(low)) > 2
