r"""Equality of two leaves by math-verify, fenced where it is known to be too kind. May hang: workers only."""

from __future__ import annotations

import logging
import re
from functools import lru_cache

_COMMAND = re.compile(r"\\[A-Za-z]+")
_TEXTUAL = re.compile(r"\\(?:text|mathrm|textrm|textbf|mbox|operatorname|mathbf) ?\{([^{}]*)\}")


def letters(text: str) -> frozenset[str]:
    """Single letters that stand for variables, case kept."""
    return frozenset(re.findall(r"[A-Za-z]", _COMMAND.sub(" ", _TEXTUAL.sub(" ", text)))) - {"e", "i"}


def plain_words(text: str) -> str | None:
    """A worded answer in one spelling, or null if the answer is not words."""
    words = re.sub(r"\s+", " ", _TEXTUAL.sub(r"\1", text)).strip(" .()").lower()
    return words if re.fullmatch(r"[a-z][a-z' -]*", words) and (len(words) > 1) else None


def equivalent(prediction: str, gold: str) -> bool:
    """Is `prediction` the same value as `gold`? Both normalised leaves."""
    one, other = plain_words(prediction), plain_words(gold)
    if one is not None and one == other:
        return True
    if letters(prediction) != letters(gold):
        return False
    from math_verify import verify

    wanted, got = _parsed(gold), _parsed(prediction)
    if not wanted or not got:
        return False
    return bool(verify(wanted, got, float_rounding=6, timeout_seconds=None))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> list[object]:
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse

    logging.disable(logging.WARNING)
    normalisation = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=False, nits=False, boxed="none", equations=False
    )
    config = LatexExtractionConfig(boxed_match_priority=-1, normalization_config=normalisation)
    return parse(
        f"${text}$", extraction_config=[config], fallback_mode="no_fallback", extraction_mode="first_match", parsing_timeout=None
    )


def warm() -> None:
    """Import and exercise everything once, so that a fork inherits it."""
    equivalent(r"\frac{\sqrt{3}}{2}", r"\frac{3}{2\sqrt{3}}")
