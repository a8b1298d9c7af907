"""Windows: the part of a trace that an encoder gets, measured in tokens of that encoder or in characters."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from storage.errors import UserError

Place = Literal["first", "middle", "last"]
Span = tuple[int, int]
#: Without leading zeros, so that each window has one spelling. 0 is not allowed, because it would mean the whole trace.
_AMOUNT = r"[1-9][0-9]{0,6}"


@dataclass(frozen=True, slots=True)
class Window:
    """A window of `amount` tokens (or characters) of a trace. A shorter trace is its own window."""

    place: Place
    amount: int
    unit: Literal["tokens", "chars"] = "tokens"

    def cut(self, text: str, spans: Sequence[Span]) -> str:
        """Return the part of `text` in this window. spans: (begin, end) of each of its tokens, in characters.

        >>> Window("last", 1).cut("ab cd", [(0, 2), (3, 5)])
        'cd'
        """
        if self.unit == "chars":
            return text[: self.amount]
        chosen = spans[self._slice(len(spans))]
        return text[chosen[0][0] : chosen[-1][1]] if chosen else text

    def size(self, text: str, spans: Sequence[Span]) -> int:
        """Return the number of the trace's tokens in this window."""
        if self.unit == "chars":
            return sum(end <= self.amount for _, end in spans)
        return len(spans[self._slice(len(spans))])

    def _slice(self, length: int) -> slice:
        left = max(0, length - self.amount)
        start = {"first": 0, "middle": left // 2, "last": left}[self.place]
        return slice(start, start + self.amount)


def window_named(name: str) -> Window | None:
    """Parse a window's name: `first256`, `middle256`, `last256`, `head2000chars` (the published window), or `whole`,
    which gives None: the trace from its beginning up to the encoder's limit.

    >>> window_named("middle256")
    Window(place='middle', amount=256, unit='tokens')
    """
    if name == "whole":
        return None
    if head := re.fullmatch(rf"head({_AMOUNT})chars", name):
        return Window("first", int(head[1]), "chars")
    if match := re.fullmatch(rf"(first|middle|last)({_AMOUNT})", name):
        return Window(match[1], int(match[2]))  # type: ignore[arg-type]
    raise UserError(f"unknown window '{name}': write whole, first256, middle256, last256 or head2000chars")


def of_tokens(name: str) -> bool:
    """Return whether a window has a fixed number of tokens. All traces that fill it then have equal length.

    >>> [of_tokens(name) for name in ("first256", "middle16", "whole", "head2000chars", "reworded")]
    [True, True, False, False, False]
    """
    return re.fullmatch(rf"(first|middle|last){_AMOUNT}", name) is not None


# ---- reworded traces: how far an encoder moves a trace when words change but not the meaning
#
# Connectives and everyday verbs are replaced by synonyms; mathematics is unchanged. Two traces that are closer than a
# trace and its reworded version cannot be told apart.

#: The name of the window under which reworded traces are stored, one trace per problem.
REWORDED = "reworded"
SYNONYMS = (
    "so/thus therefore/hence because/since get/obtain gives/yields find/determine check/verify compute/calculate"
    " assume/suppose also/moreover but/however clearly/obviously start/begin try/attempt maybe/perhaps recall/remember"
    " note/observe use/apply using/applying need/require finally/eventually simple/easy large/big must/should"
    " shows/demonstrates answer/result equals/is whole/entire several/various wrong/incorrect"
)
_PAIRS = [pair.split("/") for pair in SYNONYMS.split()]
_OTHER = {one: two for pair in _PAIRS for one, two in (pair, pair[::-1]) if one != "is"}
_WORD = re.compile(r"(?<![\\\w])(" + "|".join(sorted(_OTHER, key=len, reverse=True)) + r")(?!\w)", re.IGNORECASE)
_INLINE = re.compile(r"\\\((.+?)\\\)", re.DOTALL)


def reworded(text: str) -> str | None:
    r"""Return the text with synonyms; None if no word of it has one in the table.

    >>> reworded(r"So we get \(x = 2\), thus 4.")
    'Thus we obtain $x = 2$, so 4.'
    >>> reworded("x = 2") is None
    True
    """

    def other(match: re.Match[str]) -> str:
        new = _OTHER[match[0].lower()]
        return new.capitalize() if match[0][0].isupper() else new

    replaced, changed = _WORD.subn(other, text)
    return _INLINE.sub(lambda m: f"${m[1]}$", replaced) if changed else None
