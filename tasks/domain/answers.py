r"""The answer that a completion commits to, and the spelling in which answers are compared.

Text only: Unicode and LaTeX of many spellings are brought to one, exact numbers are read as fractions,
and the committed answer is taken out of its region. Whether it is right is judged in `grading`.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

MAX_NUMBER_DIGITS = 2_000
_SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-", "×": r"\times ", "⋅": r"\cdot ", "·": r"\cdot ", "∙": r"\cdot ", "∗": "*",
    "÷": "/", "∕": "/", "⁄": "/", "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ",
    "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ",
    "°": r"^{\circ}", "º": r"^{\circ}", "±": r"\pm ", "∓": r"\mp ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ",
    "γ": r"\gamma ", "λ": r"\lambda ", "μ": r"\mu ", "φ": r"\phi ", "ω": r"\omega ", "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ",
    "“": '"', "”": '"', "’": "'", "‘": "'", "…": r"\ldots ", "⟨": "(", "⟩": ")", "％": r"\%", "′": "'",
}  # fmt: skip
_RENAMED = (
    (r"\.{3,}", r"\\ldots "),
    (r"(?<![A-Za-z\\])(?:infinity|infty|inf)(?![A-Za-z])", r"\\infty "),
    (r"(?<![A-Za-z\\])(pi|theta|alpha|beta|gamma|lambda)(?![A-Za-z])", r"\\\1 "),
    (
        r"(?<![A-Za-z\\])(sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|ln|exp|gcd|lcm|max|min)(?= ?[({\d]| [a-z]\b)",
        r"\\\1 ",
    ),
    (r"(?<![A-Za-z\\])sqrt ?\(([^()]*)\)", r"\\sqrt{\1}"),
    (r"(?<![A-Za-z\\])sqrt(?=[ \d{])", r"\\sqrt"),
    (r"(?<![A-Za-z\\])floor ?\(([^()]*)\)", r"\\lfloor \1\\rfloor "),
    (r"(?<![A-Za-z\\])ceil(?:ing)? ?\(([^()]*)\)", r"\\lceil \1\\rceil "),
    (r"(?<=[\])]) ?U ?(?=[\[({])", r"\\cup "),
    (r"\\(?:dfrac|tfrac|cfrac)(?![A-Za-z])", r"\\frac"),
    (r"\\(?:leqslant|leqq|leq)(?![A-Za-z])", r"\\le "),
    (r"\\(?:geqslant|geqq|geq)(?![A-Za-z])", r"\\ge "),
    (r"\\neq(?![A-Za-z])", r"\\ne "),
    (r"\\lt(?![A-Za-z])", "<"),
    (r"\\gt(?![A-Za-z])", ">"),
    (r"\\(?:left|right|middle|bigl|bigr|Bigl|Bigr|big|Big|bigg|Bigg|biggl|biggr)(?![A-Za-z])\s*\.?", ""),
    (
        r"\\(?:displaystyle|textstyle|limits|nolimits|mathstrut|strut|quad|qquad|hfill|hspace\{[^}]*\}|newline)(?![A-Za-z])",
        " ",
    ),
    (r"(?<!\\)\\(?:,|;|:|!|\s|>)", " "),
    (r"\\langle(?![A-Za-z])", "("),
    (r"\\rangle(?![A-Za-z])", ")"),
    (r"~", " "),
    (r"\\(?:lbrace)(?![A-Za-z])", r"\\{"),
    (r"\\(?:rbrace)(?![A-Za-z])", r"\\}"),
    (r"\\lbrack(?![A-Za-z])", "["),
    (r"\\rbrack(?![A-Za-z])", "]"),
    (r"\\(?:varnothing|empty)(?![A-Za-z])", r"\\emptyset "),
    (r"\\(?:degree|degrees)(?![A-Za-z])", r"^{\\circ}"),
    (r"\^\s*\\circ(?![A-Za-z])", r"^{\\circ}"),
    (r"\^\s*\{\s*\\circ\s*\}", r"^{\\circ}"),
    (r"\\(?:mathbf|mathit|boldsymbol|bm|mathsf)\s*\{([A-Za-z0-9]+)\}", r"\1"),
)
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,])(\d{1,3})((?: \d{3})+)(?![\d])")
_BRACED_COMMA = re.compile(r"(?<=\d)\{,\}(?=\d{3})|(?<=\d)\\,(?=\d{3}(?!\d))")


def normalise(text: str) -> str:
    r"""One spelling: ASCII and LaTeX, no delimiters, no sizing or spacing commands.

    >>> normalise("$x²−½$"), normalise(r"\left( \dfrac12,\, 3\right)")
    ('x^{2}-\\frac{1}{2}', '( \\frac{1}{2}, 3)')
    >>> normalise("**1{,}234**."), normalise("√(2+π)")
    ('1,234', '\\sqrt{2+\\pi }')
    """
    text = _ascii(text)
    text = _BRACED_COMMA.sub(",", text)
    for pattern, replacement in _RENAMED:
        text = re.sub(pattern, replacement, text)
    text = re.sub(r"\\\(|\\\)|\\\[|\\\]", " ", text)
    text = re.sub(r"(?<!\\)\$", " ", text)
    text = text.replace("**", "^" if re.search(r"[\w)]\*\*[\w({]", text) else "").replace("`", "")
    text = re.sub(r"([\^_]) ?(-?\d{2,}|-\d|-[A-Za-z])", r"\1{\2}", text)
    text = re.sub(r"\^ ?\(([^()]*)\)", r"^{\1}", text)
    text = _brace_arguments(text)
    text = re.sub(r"\s+", " ", text).strip()
    return strip_punctuation(text)


_ARGUMENTS = re.compile(r"\\(frac|binom|sqrt)(?![A-Za-z])\s*(\[[^\]]*\])?")


def _brace_arguments(text: str) -> str:
    r"""`\frac12` and `\frac {1}2` as `\frac{1}{2}`, `\sqrt2` as `\sqrt{2}`."""
    out, at = [], 0
    while match := _ARGUMENTS.search(text, at):
        out.append(text[at : match.start()] + f"\\{match[1]}{match[2] or ''}")
        at = match.end()
        for _ in range(1 if match[1] == "sqrt" else 2):
            gap = re.compile(r"\s*").match(text, at)
            token = re.compile(r"\s*(\d|[A-Za-z]|\\[A-Za-z]+)").match(text, at)
            if gap and text[gap.end() : gap.end() + 1] == "{":
                end = matching(text, gap.end())
                if end is None:
                    break
                out.append("{" + _brace_arguments(text[gap.end() + 1 : end]) + "}")
                at = end + 1
            elif token:
                out.append("{" + token[1] + "}")
                at = token.end()
            else:
                break
    return "".join(out) + text[at:]


def strip_punctuation(text: str) -> str:
    """Without the full stop, comma or colon that ends a sentence around it."""
    while text and ((text[-1] in ".,;:!" and not text.endswith(("\\!", "\\,", "\\;"))) or text[0] in ",;:"):
        if text[-1] == "!" and len(text) > 1 and (text[-2].isalnum() or text[-2] in ")}"):
            break  # a factorial, not an exclamation
        text = (text[:-1] if text[-1] in ".,;:!" else text[1:]).strip()
    return text


def _ascii(text: str) -> str:
    out, i = [], 0
    while i < len(text):
        char = text[i]
        if char < "\x80":
            out.append(char)
        elif char in _SYMBOLS:
            out.append(_SYMBOLS[char])
        elif (form := unicodedata.decomposition(char)).startswith(("<super>", "<sub>")):
            mark, j = ("^" if form.startswith("<super>") else "_"), i
            kind = form.split(">")[0]
            while j < len(text) and unicodedata.decomposition(text[j]).startswith(kind):
                j += 1
            body = unicodedata.normalize("NFKC", text[i:j]).replace("−", "-")
            out.append(f"{mark}{{{body}}}")
            i = j
            continue
        elif form.startswith("<fraction>"):
            top, _, bottom = unicodedata.normalize("NFKC", char).partition("⁄")
            out.append(rf"\frac{{{top}}}{{{bottom}}}")
        elif char in "√∛∜":
            body, i = _root_body(text, i + 1)
            index = {"√": "", "∛": "[3]", "∜": "[4]"}[char]
            out.append(rf"\sqrt{index}{{{_ascii(body)}}}")
            continue
        else:
            out.append(unicodedata.normalize("NFKC", char))
        i += 1
    return "".join(out)


def _root_body(text: str, i: int) -> tuple[str, int]:
    while i < len(text) and text[i] == " ":
        i += 1
    if i < len(text) and text[i] in "({":
        end = matching(text, i)
        if end is not None:
            return text[i + 1 : end], end + 1
    run = re.compile(r"\d+(?:\.\d+)?|[A-Za-z]|π").match(text, i)
    return (run.group(), run.end()) if run else ("", i)


_PAIRS = {"(": ")", "[": "]", "{": "}"}


def matching(text: str, start: int) -> int | None:
    r"""Index of the bracket that closes the one at `start`, counting only that kind; null if it is never closed."""
    opening, closing, depth = text[start], _PAIRS[text[start]], 0
    for i in range(start, len(text)):
        if text[i] == "\\" and opening == "{":
            continue
        escaped = i > 0 and text[i - 1] == "\\" and opening == "{" and i != start
        if text[i] == opening and not escaped:
            depth += 1
        elif text[i] == closing and not escaped:
            depth -= 1
            if depth == 0:
                return i
    return None


@dataclass(frozen=True, slots=True)
class Number:
    """An exact number as it was written. value: without unit; decimal: a point was written; unit: `%`, `°`, a word."""

    value: Fraction
    decimal: bool = False
    unit: str | None = None


_INT = r"\d+|\d{1,3}(?:,\d{3})+"
_PLAIN = re.compile(rf"(?P<int>{_INT})?(?P<point>\.\d*)?(?:[eE](?P<exp>[+-]?\d{{1,3}}))?")
_FRACTION = re.compile(r"(?P<whole>\d+ ?)?\\frac ?\{ ?(?P<top>[+-]? ?\d+) ?\} ?\{ ?(?P<bottom>[+-]? ?\d+) ?\}")
_SLASH = re.compile(r"(?:(?P<whole>\d+) )?(?P<top>\d+) ?/ ?(?P<bottom>[+-]?\d+)")
_SCIENTIFIC = re.compile(
    r"(?P<mantissa>\d+(?:\.\d+)?) ?(?:\\times|\\cdot|\*|x) ?10 ?\^ ?(?:\{ ?(?P<e1>[+-]?\d{1,4}) ?\}|(?P<e2>[+-]?\d{1,4}))"
)
_SIGN = re.compile(r"^([+-]) ?")


def number(text: str) -> Number | None:
    r"""An integer, fraction, decimal, mixed number or power of ten, with an optional unit; null for anything else.

    >>> number("1,234").value, number(r"-3\frac{1}{2}").value, number("0.50").value, number(r"62.5\%").unit
    (Fraction(1234, 1), Fraction(-7, 2), Fraction(1, 2), '%')
    """
    if len(text) > MAX_NUMBER_DIGITS or not any(c.isdigit() for c in text):
        return None
    text, unit = split_unit(text.strip())
    bare = _unwrap(text)
    sign = 1
    while match := _SIGN.match(bare):
        sign, bare = (-sign if match[1] == "-" else sign), _unwrap(bare[match.end() :])
    found = _magnitude(bare)
    return None if found is None else Number(sign * found[0], found[1], unit)


def _unwrap(text: str) -> str:
    while text and text[0] in "({" and "," not in text and matching(text, 0) == len(text) - 1:
        text = text[1:-1].strip()
    return text


_REPEATING = re.compile(
    r"(?P<head>\d*\.\d*?)(?:\\(?:overline|bar|dot) ?\{? ?(?P<period>\d+) ?\}?|(?P<digit>\d)(?P=digit){2,} ?(?:\.{2,}|\\l?dots|\\cdots))"
)


def _magnitude(text: str) -> tuple[Fraction, bool] | None:
    if match := _REPEATING.fullmatch(text):
        period, decimals = match["period"] or match["digit"], len(match["head"].split(".")[1])
        tail = Fraction(int(period), 10 ** len(period) - 1) / 10**decimals
        return Fraction(match["head"].rstrip(".") or "0") + tail, False
    if match := re.fullmatch(r"(\d+) and (\d+) ?/ ?(\d+)", text):
        return (Fraction(int(match[2]), int(match[3])) + int(match[1]), False) if int(match[3]) else None
    if match := _PLAIN.fullmatch(_SPACED_THOUSANDS.sub(lambda m: m[0].replace(" ", ""), text)):
        if match["int"] is None and match["point"] in (None, "."):
            return None
        digits = (match["int"] or "0").replace(",", "") + (match["point"] or "").rstrip(".")
        value = Fraction(digits) * Fraction(10) ** int(match["exp"] or 0)
        return value, bool(match["point"]) and match["point"] != "."
    if match := _FRACTION.fullmatch(text) or _SLASH.fullmatch(text):
        top, bottom = int(match["top"].replace(" ", "")), int(match["bottom"].replace(" ", ""))
        if bottom == 0 or (match["whole"] and (top < 0 or bottom < 0)):
            return None
        return Fraction(top, bottom) + int(match["whole"] or 0), False
    if match := _SCIENTIFIC.fullmatch(text):
        exponent = int(match["e1"] or match["e2"])
        return Fraction(match["mantissa"]) * Fraction(10) ** exponent, "." in match["mantissa"]
    return None


_UNITS = {
    "degree": "°", "degrees": "°", "deg": "°", "percent": "%", "percentage": "%", "pct": "%",
    "dollar": "$", "dollars": "$", "usd": "$", "cent": "cent", "cents": "cent", "cm": "cm", "centimeter": "cm", "centimeters": "cm", "centimetres": "cm",
    "mm": "mm", "millimeters": "mm", "millimetres": "mm", "km": "km", "kilometers": "km", "kilometres": "km", "kilometer": "km",
    "meter": "m", "meters": "m", "metre": "m", "metres": "m", "m": "m", "inch": "in", "inches": "in", "in": "in", "ft": "ft", "foot": "ft",
    "feet": "ft", "yard": "yd", "yards": "yd", "mile": "mi", "miles": "mi", "hour": "h", "hours": "h", "hr": "h", "hrs": "h", "minute": "min", "minutes": "min",
    "min": "min", "mins": "min", "second": "s", "seconds": "s", "sec": "s", "day": "day", "days": "day", "week": "week", "weeks": "week",
    "month": "month", "months": "month", "year": "year", "years": "year", "kg": "kg", "g": "g", "gram": "g", "grams": "g", "kilograms": "kg", "lb": "lb", "lbs": "lb", "pounds": "lb",
    "mph": "mph", "rad": "rad", "radian": "rad", "radians": "rad", "unit": "", "units": "", "square": "", "cubic": "", "sq": "",
}  # fmt: skip
_TEXT_UNIT = re.compile(
    r"^(?P<number>.+?) ?\\(?:text|mathrm|textrm|textbf|mbox|operatorname|hbox) ?\{(?P<word>[^{}]*)\}(?P<power> ?\^ ?\{?[23]\}?)?$",
    re.S,
)
_WORD_UNIT = re.compile(
    r"^(?P<number>.*?[\d})])(?: ?(?P<glued>cm|mm|km|kg|ft|lbs?|mph)| (?P<word>[A-Za-z][A-Za-z. ]*[A-Za-z]))(?P<power> ?\^ ?\{?[23]\}?)?$",
    re.S,
)
CHANGES_VALUE = re.compile(
    r"\b(?:squared|cubed|factorial|times|plus|minus|over|divided|root|half|third|quarter|hundred|thousand|million|billion"
    r"|trillion|dozen|mod|modulo|power|choose|base)\b", re.I)  # fmt: skip
_CONNECTS = re.compile(r"\b(?:not|or|and|to|between|if|for|when|where|at|least|most|more|less|than|but)\b", re.I)


def split_unit(text: str) -> tuple[str, str | None]:
    r"""(what is left, unit or null). A bare single letter is a variable, never a unit: `6m` is 6·m.

    >>> split_unit(r"6\text{ m}"), split_unit("6m"), split_unit("45^{\\circ}"), split_unit(r"\$5")
    (('6', 'm'), ('6m', None), ('45', '°'), ('5', '$'))
    """
    text = text.strip()
    if text.startswith((r"\$", "$")):
        return text.lstrip("\\$ "), "$"
    for suffix, unit in ((r"\%", "%"), ("%", "%"), (r"^{\circ}", "°"), (r"\$", "$")):
        if text.endswith(suffix):
            return text[: -len(suffix)].rstrip(), unit
    match = _TEXT_UNIT.match(text) or _WORD_UNIT.match(text)
    if match is None:
        return text, None
    groups = match.groupdict()
    word = (groups.get("word") or groups.get("glued") or "").strip()
    if not word or CHANGES_VALUE.search(word) or _CONNECTS.search(word) or not re.search(r"[A-Za-z]", word):
        return text, None
    known = [_UNITS.get(w.lower().rstrip("."), "?") for w in re.findall(r"[A-Za-z.]+", word)]
    unit = "".join(k for k in known if k) if "?" not in known else "?"
    return match["number"].strip(), (unit + (groups.get("power") or "").strip(" ^{}")) or "?"


_EMPTY_ARGUMENT = re.compile(
    r"\\(?:frac|binom)\s*(?:\{[^{}]*\}\s*)?(?:\{\s*\}|$)|\\sqrt\s*(?:\[[^\]]*\])?\s*(?:\{\s*\}|$)|[\^_]\s*(?:\{\s*\}|$)"
)


def repaired(text: str) -> str | None:
    r"""Normalised text with the braces closed that end it; null if that does not make it whole.

    >>> repaired(r"\frac{1}{2"), repaired("7}"), repaired("(1,2"), repaired("[1,2)"), repaired(r"\frac{1}{")
    ('\\frac{1}{2}', '7', None, '[1,2)', None)
    """
    depth, rounds = 0, 0
    for i, char in enumerate(text):
        if char in "{}" and not (i and text[i - 1] == "\\"):
            depth += 1 if char == "{" else -1
        elif char in "([])":
            rounds += 1 if char in "([" else -1
        if depth < 0:
            return repaired(text[:i]) if i and not text[i:].strip(" }") else None
    text += "}" * depth
    swapped = text.startswith("]") or text.endswith("[")
    if (rounds and not swapped) or text.count(r"\{") != text.count(r"\}") or depth > 20:
        return None
    return None if _EMPTY_ARGUMENT.search(text) else text
