r"""The visible part of a completion: no comments, phantoms, white text, hidden elements or invisible characters.

Invisible text is ignored: tags in it earn no reward, and answers in it are not graded. Struck-out text is visible
but not an answer.
"""

from __future__ import annotations

import html
import re
import unicodedata

#: Format and control characters, fillers, variation selectors, tags: no ink, no space.
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
#: A text without any of these hides nothing: to look for them is a tenth of the work.
_HIDING = ("<!--", r"\iffalse", "%", "hidden", "none")
_WHITE = r"\s*\{\s*white\s*\}"
_UNSEEN = re.compile(rf"\\(?:(?:[hv]?phantom|label|textcolor{_WHITE})\s*(?P<argument>\{{)|color{_WHITE})")
_STRUCK = re.compile(
    r"(?<![\w$}~])~~(?=[^\s~])[^~\n]{1,200}(?<=[^\s~])~~(?![\w$\\{~])|<(s|del|strike)>[^<]{0,500}</\1>"
    r"|\\(?:sout|xout|st|[bx]?cancel) ?\{[^{}]*\}"
)
#: Elements; macros with lengths and colours; fonts, boxes, delimiters and spaces.
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
    """Return a final-answer region without its struck-out text."""
    return _STRUCK.sub("", region)


def says_something(text: str) -> bool:
    """Return whether a letter, digit or mathematical sign remains after removing spaces and decoration."""
    plain = _DRESSING.sub("", html.unescape(text))
    ink = any(c.isalnum() or (not c.isascii() and unicodedata.category(c) == "Sm") for c in plain)
    return ink or r"\{" in plain


_BRACES = re.compile(r"\\.|[{}]", re.S)


def closing(text: str, start: int) -> int | None:
    r"""Return the position at which the braces that are open here close; None if they never close. `\{` opens none."""
    depth = 0
    for match in _BRACES.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth < 0:
            return match.start()
    return None


def answer_blocks(text: str, unclosed: bool = True) -> list[str]:
    """The contents of all `<answer>` tags. unclosed: include an unclosed one."""
    closed, _, rest = text.rpartition("</answer>")
    _, opened, last = rest.partition("<answer>")
    return re.findall("<answer>(.*?)</answer>", f"{closed}</answer>", re.S) + ([last] if opened and unclosed else [])


_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*")
_NESTED = re.compile(rf"[\s$]*{_BOX.pattern}\{{")
_BARE = re.compile(r"[^\s$]+?(?=,?\\boxed|[\s$]|$)")
_PERCENT = re.compile(r"\s*\\?%")
_DENIAL = re.compile(r"(?:\bnot|n't|\bnever|\brather than|\binstead of|\bexcept)(?: equal to)?[\s$(:]*$", re.I)
_SPACE = r"(?:[\s$,;]|\\[,;:! ()\[\]]|\\q?quad(?![A-Za-z]))*"
_SEPARATOR = re.compile(
    rf"{_SPACE}(?:and|or|\\(?:text|mbox|textrm|mathrm) ?\{{[ ,;]*(?:and|or) ?\}})?{_SPACE}(?:[A-Za-z](?:_\d)? ?= ?)?"
)
#: A longer text between two boxes separates nothing.
MAX_SEPARATOR = 40


def boxed(text: str) -> tuple[list[str], bool, bool]:
    r"""Return (distinct contents of all `\boxed`, whether they form one list, whether the last is unclosed).

    >>> boxed(r"\boxed{\frac{1}{2}} and \boxed{3}")
    (['\\frac{1}{2}', '3'], True, False)
    >>> boxed(r"It is not \boxed{\boxed{7}}.")
    (['not 7'], False, False)
    """
    found: list[str] = []
    gaps: list[str] = []
    end, cut = 0, False
    for match in _BOX.finditer(text):
        start = match.end()
        if match.start() < end:
            continue
        gap = text[max(end, match.start() - MAX_SEPARATOR) : match.start()]
        gaps.append(gap if match.start() - end <= MAX_SEPARATOR else "…")
        if text[start : start + 1] != "{":
            bare = _BARE.match(text, start)
            inner = bare[0].rstrip(".,") if bare else ""
            found.append(inner.rstrip(")") if inner.count(")") > inner.count("(") else inner)
            end = start + len(found[-1])
            continue
        stop = closing(text, start + 1)
        cut = stop is None
        if stop is None:  # an unclosed box ends with its line, without final punctuation
            stop, end = start + max(1, len(text[start:].partition("\n")[0].rstrip("$. "))), len(text)
        else:
            end = stop + 1
        inner = text[start + 1 : stop]
        for _ in range(3):  # a box that holds only another box
            nested = _NESTED.match(inner)
            last = closing(inner, nested.end()) if nested else None
            if nested and (last is None or not inner[last + 1 :].strip(" $")):
                inner = inner[nested.end() : last]
        percent = not cut and _PERCENT.match(text, end)
        found.append(("not " if _DENIAL.search(gap) else "") + inner + (r"\%" if percent else ""))
    commas = len(found) > 1 and all(gap.strip() == "," for gap in gaps[1:])
    if commas and gaps[0].endswith("(") and text[end : end + 1] == ")":
        return [f"({','.join(found)})"], False, cut
    joined = len(found) > 1 and all(_SEPARATOR.fullmatch(gap) for gap in gaps[1:])
    return list(dict.fromkeys(found)), joined, cut


def before_boxes(text: str) -> str:
    """The text before the first box; empty if there is no box."""
    before, *boxes = _BOX.split(text, maxsplit=1)
    return before if boxes else ""


_STATED = re.compile(
    r"(?:^[ \t]*####|\banswer\b[*\s]*(?:\bis\b\s*:?|:))[ \t*]*(?P<answer>[^\n]+?)(?=\.(?:\s|$)|$)", re.M | re.I
)


def final_answer(text: str) -> tuple[str, str | None]:
    r"""(preceding text, final-answer region) of a completion without a prescribed format: everything if it has a
    `\boxed{}`, else its `<answer>` tags, else the text after the last `####`, `answer is` or `answer:`.

    >>> final_answer("3 + 4 = 7. The answer is 7. Done"), final_answer("6*3\n#### 18"), final_answer("It may be 7.")
    (('3 + 4 = 7. The ', '7'), ('6*3\n', '18'), ('It may be 7.', None))
    """
    if _BOX.search(text):
        return before_boxes(text), text
    if blocks := answer_blocks(text):
        return text.partition("<answer>")[0], "\n".join(f"<answer>{block}</answer>" for block in blocks)
    stated = list(_STATED.finditer(text))
    return (text[: stated[-1].start()], stated[-1]["answer"].strip("* \t\r")) if stated else (text, None)
