"""Units by a column's name: what is printed in percent, as a difference of shares, as a p-value."""

from __future__ import annotations

SHARES = (
    "rate",
    "share",
    "accuracy",
    "coverage",
    "correct_mean",
    "truncated",
    "no_answer",
    "invalid_tags",
    "live_groups",
    "tag_valid_mean",
)


def is_share(name: str) -> bool:
    """
    >>> is_share("heldout_before"), is_share("other_truncated"), is_share("pass_at_k_low"), is_share("entropy")
    (True, True, True, False)
    """
    base = name.removesuffix("_low").removesuffix("_high").removeprefix("other_")
    return base in SHARES or base.endswith(("_rate", "_share", "_coverage")) or base.startswith(("pass_at", "heldout_"))


def is_gain(name: str) -> bool:
    """A difference of shares, printed in points."""
    base = name.removesuffix("_low").removesuffix("_high")
    return base == "gain" or base.endswith(("_gain", "_pp"))


def is_p_value(name: str) -> bool:
    return name.startswith("p_") or name.endswith("_p")
