"""Rollouts as a browser may show them: data, never mark-up. Formulas are set, tags marked, all else is literal."""

from __future__ import annotations

import re

#: What a page shows of one rollout; the rest stays in the store.
MOST = 20_000
MATH = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(?<![\\$\d])\$([^$\n]{1,400}?)\$(?!\d)", re.DOTALL)
TAG = re.compile(r"</?(?:mutipersonaDebate|think|answer)>")
SPEAKER = re.compile(r"(?:(?<=^)|(?<=\n)|(?<=\. ))((?:Expert|Persona) \d+|[A-Z][a-z]{1,15}):(?=\s)")
DIRECTION = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f]")
#: Markdown's own characters, each made literal by a backslash.
MARKS = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~^:$&=\"'])")


def literal(text: str) -> str:
    """Text that markdown shows as it is. Characters that turn the line round or control a terminal are named.

    >>> literal("<b>*x*</b>")
    '\\\\<b\\\\>\\\\*x\\\\*\\\\</b\\\\>'
    """
    named = DIRECTION.sub(lambda m: f"⟨U+{ord(m[0]):04X}⟩", text)
    plain = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in named)
    return MARKS.sub(r"\\\1", plain).replace("\n", "  \n").replace("\t", " ")


def mathematics(text: str) -> str:
    """Formulas between dollars, for the page to set; the rest literal."""
    parts, end = [], 0
    for found in MATH.finditer(text):
        parts.append(literal(text[end : found.start()]))
        formula = next(group for group in found.groups() if group is not None).strip()
        display = found.group(1) is not None or found.group(2) is not None
        one_line = re.sub(r"\s+", " ", formula).replace("$", r"\$")
        parts.append(f"\n\n$$\n{one_line}\n$$\n\n" if display and one_line else f"${one_line}$" if one_line else "")
        end = found.end()
    return "".join([*parts, literal(text[end:])])


def marked(text: str) -> str:
    """One rollout as markdown: tags as badges, speakers in bold, formulas set, everything else literal."""
    cut = text[:MOST]
    parts, end = [], 0
    for tag in TAG.finditer(cut):
        parts += [_spoken(cut[end : tag.start()]), f" :blue-badge[{literal(tag[0])}] "]
        end = tag.end()
    return "".join([*parts, _spoken(cut[end:])])


def _spoken(text: str) -> str:
    parts, end = [], 0
    for speaker in SPEAKER.finditer(text):
        parts += [mathematics(text[end : speaker.start()]), f"\n\n**{literal(speaker[1])}:**"]
        end = speaker.end()
    return "".join([*parts, mathematics(text[end:])])
