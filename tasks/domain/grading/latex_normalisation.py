r"""LaTeX normalisation: convert Unicode and variants of LaTeX to one form. Text in, text out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

#: Names in LaTeX or ASCII, each followed by the characters of Unicode and the commands that it stands for.
_SPELLINGS = r"""
- − – — ‐ ‑ ﹣  * ∗  / ÷ ∕ ⁄  " “ ”  ' ’ ‘ ′  '' ″  . 。  ( ⟨ langle  ) ⟩ rangle  < lt  > gt  \% ％  ^{\circ} ° º
\frac dfrac tfrac cfrac nicefrac sfrac  \binom dbinom tbinom  \ldots … dots dotsc dotsb cdots  \times ×  \cdot ⋅ · ∙
\pm ±  \mp ∓  \le ≤ ⩽ leq leqslant leqq  \ge ≥ ⩾ geq geqslant geqq  \ne ≠ neq  \approx ≈  \in ∈  \cup ∪  \cap ∩
\emptyset ∅ Ø varnothing empty  \infty ∞  \to →  \Rightarrow ⇒  \therefore ∴  \lfloor ⌊  \rfloor ⌋  \lceil ⌈  \rceil ⌉
\mathbb{R} ℝ  \mathbb{Z} ℤ  \mathbb{N} ℕ  \alpha α  \beta β  \gamma γ  \delta δ  \epsilon ε  \zeta ζ  \eta η  \theta θ
\iota ι  \kappa κ  \lambda λ  \mu µ μ  \nu ν  \xi ξ  \omicron ο  \pi π  \rho ρ  \sigma σ  \tau τ  \upsilon υ  \phi φ
\chi χ  \psi ψ  \omega ω  \Gamma Γ  \Delta Δ  \Theta Θ  \Lambda Λ  \Xi Ξ  \Pi Π  \Sigma Σ  \Upsilon Υ  \Phi Φ  \Psi Ψ
\Omega Ω
"""
#: A command takes a space, unless arguments follow it.
_NAMES = {
    other: name + " " * (name[-1].isalpha() and name not in (r"\frac", r"\binom"))
    for name, *others in map(str.split, re.split("  |\n", _SPELLINGS.strip()))
    for other in others
}
_CHARACTERS = str.maketrans({other: name for other, name in _NAMES.items() if not other.isascii()})
_SYNONYMS = "|".join(filter(str.isascii, _NAMES))
_TEXT = r"\\(?:text|mathrm) ?\{ ?"
RENAMED = (
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
        r"|\\(?:left|right|middle|[bB]igg?[lr]?)(?![A-Za-z])\s*\.?|^ ?\"(?=[^\"]*\" ?$)|(?<=.)\" ?$",
        "",
    ),
    (r"\\underline ?\{ ?(\\underline ?\{[^{}]*\}) ?\}", r"\1"),
    (r"(?<![\^_{])(?<![\^_] )\\underline ?(?=\{)", ""),
    (r"\\(?:textnormal|textit|textsf|texttt|emph)(?= ?\{)", r"\\text"),
    (r"\\(?:mathrm|operatorname|text) ?\{ ?((?:arc)?(?:sin|cos|tan)h?|cot|sec|csc|ln|log|exp) ?\}", r"\\\1 "),
    (r"\\(?:mathrm|rm|operatorname) ?(?:\{([eid])\}| ([eid]))|\\text ?\{(e)\}", lambda m: f" {m[1] or m[2] or m[3]} "),
    (rf"(?<=\d)(?: ?\^ ?\{{? ?(?:{_TEXT})?)?(?:st|nd|rd|th) ?\}}{{0,2}}(?![A-Za-z])", ""),
    (r"\{ ?([^{}]+?) ?\\choose ?([^{}]+?) ?\}", r"\\binom{\1}{\2}"),
    (r"\{ ?([^{}]+?) ?\\over ?([^{}]+?) ?\}", r"\\frac{\1}{\2}"),
    (r"(?<![A-Za-z\\])n?C ?\( ?(\w{1,9}) ?, ?(\w{1,9}) ?\)", r"\\binom{\1}{\2}"),
    (
        r"(?:^|(?<=[-+*/=( ,]))(?:\{ ?\})? ?\^ ?(?:\{([^{}]+)\}|(\w)) ?C ?_ ?(?:\{([^{}]+)\}|(\w))",
        r"\\binom{\1\2}{\3\4}",
    ),
    (r"(?<![\\^_])\{ ?([-+]) ?\}", r"\1"),
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
    (r"(?<![A-Za-z\\])floor ?\(([^()]*)\)", r"\\lfloor \1\\rfloor "),
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


#: Letters that name options or points, one after the other.
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
    """Return the lines of a formula on one line: a line that goes on is joined, and other lines become a list."""
    lines = [re.sub(r"\s*(?<!\\)&\s*", " ", line).strip(" ,") for line in found["lines"].split(r"\\")]
    goes_on = r"\n(?=[-+=<>]|\\(?:le|ge|approx|cdot|times|equiv)(?![A-Za-z]))"
    return re.sub(goes_on, " ", "\n".join(filter(None, lines))).replace("\n", ", ").strip()


_GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_TOKEN = r"(\d|[A-Za-z]|\\[A-Za-z]+)"
#: Formulas of several lines, powers, and braces around arguments of one token: `\frac12`, `\frac {1}2`, `\sqrt2`.
_ARGUMENTS = (
    (
        r"(?s)^\s*\\begin ?\{(?P<name>(?:align(?:ed|at)?|equation|gather(?:ed)?|split|multline)\*?|cases(?=\}[^&]*$))\}"
        r"(?P<lines>(?:(?!\\begin).)*?)\\end ?\{(?P=name)\}\s*$",
        _one_line,
    ),
    (r"(?<=[\w)])\*\*(?=[\w({])", "^"),
    (r"\*\*|`", ""),
    (r"([\^_]) ?(-?\d*\.\d+|-?\d{2,}|-\d|-[A-Za-z])", r"\1{\2}"),
    (rf"(\\(?:frac|binom|sqrt))(?![A-Za-z])\s*(\[[^\]]*\])?\s*(?:(?=\{{)|{_TOKEN})", _braced),
    (rf"(\\(?:frac|binom))({_GROUP})\s*(?:(?=\{{)|{_TOKEN})", _braced),
)
_IMPLIES = r"(?:\\(?:Rightarrow|implies|Longrightarrow|therefore)(?![A-Za-z])|(?<![<>=])=>)"
_BEFORE = rf"(?:(?!{_IMPLIES}).)*"
#: Quotes, emphasis and a command around all of the text; relations from which it follows, and a rounding sign.
_WHOLE = (
    (r"\s+|\\\\\s*$", " "),
    (r"^'([^']+)'$|^\*{1,2}([^*_]+)\*{1,2}$|^_{1,2}([^*_]+)_{1,2}$", r"\1\2\3"),
    (rf"^\\(?:text|textrm|textbf|mathrm|mbox) ?\{{((?=.*[\d\\])(?:[^{{}}]|{_GROUP})*|{_LETTERS})\}} ?$", r"\1"),
    (r"^[ ,;:]+|(?:(?<!\\)[ .,;:]|(?<![\w)}!\\])!)+$", ""),
    (rf"^(?:(?= *{_IMPLIES}|{_BEFORE}(?:[=<>]|\\(?:le|ge|in)\b)){_BEFORE}{_IMPLIES})+(?= *\S)", ""),
    (r"^ *(?:->|\\to(?![A-Za-z]))(?= *\S)", ""),
    (r"^ *\\(?:approx|sim|simeq)(?![A-Za-z])", ""),
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
    text = rewritten(text, _WRITTEN_OUT).translate(_CHARACTERS)
    return "".join(c if c.isascii() else unicodedata.normalize("NFKC", c) for c in text)


_EMPTY_ARGUMENT = re.compile(
    r"\\(?:frac|binom)\s*(?:\{[^{}]*\}\s*)?(?:\{\s*\}|$)|\\sqrt\s*(?:\[[^\]]*\])?\s*(?:\{\s*\}|$)"
    r"|[\^_]\s*(?:\{\s*\}|$)"
)


def repaired(text: str) -> str | None:
    """Normalised text with missing final braces added; None if that does not balance it."""
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
TEXT_COMMANDS = re.compile(r"\\(?:text|textrm|textbf|textit|mbox|hbox|mathrm|operatorname) ?\{(?P<text>[^{}]*)\}")
_COMMAND = re.compile(r"\\(?:begin|end) ?\{[a-z]+\*?\}|\\[A-Za-z]+")


def prose_words(text: str) -> list[str]:
    """Natural-language words, as opposed to products of variables and names of points and functions."""
    bare = _COMMAND.sub(" ", TEXT_COMMANDS.sub(" ", text))
    return [w for w in re.findall(r"[A-Za-z]{2,}", bare) if is_word(w)]


def is_word(run: str) -> bool:
    low = run.lower()
    if FUNCTION.fullmatch(low):
        return False
    if len(run) <= 3:
        return bool(_SHORT.fullmatch(low))
    return not run.isupper() and bool(re.search(r"[aeiouy]", low)) and len(set(low)) > 2
