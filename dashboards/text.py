"""Rollouts as markdown that a page may show: formulas set, tags marked, all else literal. Data, never mark-up."""

from __future__ import annotations

import re

from dashboards.pieces import Piece, pieces, plain

#: What a page shows of one rollout; the rest stays in the store.
MOST = 20_000
#: Markdown's own characters, each made literal by a backslash.
MARKS = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~^:$&=\"'])")


def literal(text: str) -> str:
    r"""Text that markdown shows as it is.

    >>> print(literal("<b>*x*</b>"))
    \<b\>\*x\*\</b\>
    """
    return MARKS.sub(r"\\\1", plain(text)).replace("\n", "  \n").replace("\t", " ")


def marked(text: str) -> str:
    """One rollout, or a problem, as markdown."""
    return "".join(_markdown(piece) for piece in pieces(text[:MOST]))


def formula(text: str) -> str:
    """An answer or a gold, set."""
    return _markdown(Piece("math", text.strip().strip("$").replace("\n", " ")[:300]))


def _markdown(piece: Piece) -> str:
    safe = piece.text.replace("$", r"\$")
    match piece.kind:
        case "tag":
            return f" :blue-badge[{literal(piece.text)}] "
        case "speaker":
            return f"\n\n**{literal(piece.text)}:**"
        case "display":
            return f"\n\n$$\n{safe}\n$$\n\n" if safe.strip() else ""
        case "math":
            return f"${safe}$" if safe.strip() else ""
        case _:
            return literal(piece.text)
