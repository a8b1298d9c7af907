r"""LaTeX normalisation: Unicode and the many variants of LaTeX brought to one form. Text in, text out."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from tasks.domain.grading.latex_variants import RENAMED, SYMBOLS
from tasks.domain.grading.layouts import one_line

MAX_DEPTH = 60
#: Under a root sign of Unicode.
MAX_ROOT_CHARS = 200

#: Between the digits of one number: a comma with a negative space behind it, which is nowhere else.
_NEGATIVE_SPACE = re.compile(r"(?<=\d) ?, ?\\! ?(?=\d{3}(?!\d))")
#: A comma in braces, or a thin space.
_THOUSANDS = re.compile(r"(?<=\d) ?\{, ?\} ?(?=\d{3})|(?<=\d)\\,(?=\d{3}(?!\d))")
#: Letters that name options or points, one after the other.
_LETTER = r" ?\(?(?:[A-Za-z]|[IVX]{2,4})\)?"
_LETTERS = rf"{_LETTER}(?: ?(?:,|;|,? and){_LETTER})+ ?"


@lru_cache(maxsize=8192)
def normalise(text: str) -> str:
    r"""Normal form: ASCII and LaTeX, no delimiters, no sizing or spacing commands.

    >>> normalise("$x²−½$"), normalise(r"\left( \dfrac12,\, 3\right)")
    ('x^{2}-\\frac{1}{2}', '( \\frac{1}{2}, 3)')
    >>> normalise("**1{,}234**."), normalise("√(2+π)")
    ('1,234', '\\sqrt{2+\\pi }')
    """
    text = _ascii(text)
    text = _THOUSANDS.sub(",", _NEGATIVE_SPACE.sub("", text))
    for pattern, replacement in RENAMED:
        text = re.sub(pattern, replacement, text)
    text = re.sub(r"\\\(|\\\)|\\\[|\\\]", " ", text)
    text = re.sub(r"(?<!\\)\$", " ", text)
    text = one_line(text)
    text = text.replace("**", "^" if re.search(r"[\w)]\*\*[\w({]", text) else "").replace("`", "")
    text = re.sub(r"([\^_]) ?(-?\d*\.\d+|-?\d{2,}|-\d|-[A-Za-z])", r"\1{\2}", text)
    text = re.sub(r"\^ ?\(([^()]*)\)", r"^{\1}", text)
    text = _brace_arguments(text)
    text = re.sub(r"\s+|\\\\\s*$", " ", text).strip()
    text = re.sub(r"^'([^']+)'$", r"\1", text)
    text = re.sub(r"^([*_]{1,2})(?=[^*_]+\1$)(.*)\1$", r"\2", text)
    text = re.sub(rf"^\\(?:text|textrm|textbf|mathrm|mbox) ?\{{([^{{}}]*\d[^{{}}]*|{_LETTERS})\}}$", r"\1", text)
    return _conclusion(strip_punctuation(text))


_IMPLIES = re.compile(
    r"\\(?:Rightarrow|implies|Longrightarrow|therefore)(?![A-Za-z])|(?<![<>=])=>|^ ?(?:->|\\to(?![A-Za-z]))"
)
_APPROXIMATELY = re.compile(r"^ ?(?:\\approx|\\sim|\\simeq)(?![A-Za-z])")


def _conclusion(text: str) -> str:
    r"""What follows from the relations before it: `x+3=10 \Rightarrow x=7` ends in `x=7`."""
    *before, last = _IMPLIES.split(text)
    if before and last.strip() and all(not b.strip() or re.search(r"=|<|>|\\(?:le|ge|in)\b", b) for b in before):
        text = last.strip()
    return _APPROXIMATELY.sub("", text).strip()


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
        if text[-1] == "!" and len(text) > 1 and (text[-2].isalnum() or text[-2] in ")}!"):
            break  # a factorial, not an exclamation
        text = (text[:-1] if text[-1] in ".,;:!" else text[1:]).strip()
    return text


def _ascii(text: str) -> str:
    out, i = [], 0
    while i < len(text):
        char = text[i]
        if char < "\x80":
            out.append(char)
        elif char in SYMBOLS:
            out.append(SYMBOLS[char])
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
        end = matching(text[: i + MAX_ROOT_CHARS], i)
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


_EMPTY_ARGUMENT = re.compile(
    r"\\(?:frac|binom)\s*(?:\{[^{}]*\}\s*)?(?:\{\s*\}|$)|\\sqrt\s*(?:\[[^\]]*\])?\s*(?:\{\s*\}|$)"
    r"|[\^_]\s*(?:\{\s*\}|$)"
)


_TWINS = ((r"\{", r"\}"), (r"\begin{", r"\end{"))


def repaired(text: str) -> str | None:
    r"""Normalised text with the braces closed that end it; null if that does not make it whole.

    >>> repaired(r"\frac{1}{2"), repaired("7}"), repaired("(1,2"), repaired("[1,2)"), repaired(r"\frac{1}{")
    ('\\frac{1}{2}', '7', None, '[1,2)', None)
    """
    depth = rounds = deepest = 0
    for i, char in enumerate(text):
        if char in "{}" and not (i and text[i - 1] == "\\"):
            depth += 1 if char == "{" else -1
        elif char in "([])":
            rounds += 1 if char in "([" else -1
        deepest = max(deepest, depth + abs(rounds))
        if depth < 0:
            return repaired(text[:i]) if i and not text[i:].strip(" }") else None
    text += "}" * depth
    swapped = text.startswith("]") or text.endswith("[")
    if (rounds and not swapped) or deepest > MAX_DEPTH or any(text.count(a) != text.count(b) for a, b in _TWINS):
        return None
    return None if _EMPTY_ARGUMENT.search(text) else text
