"""What a scaffold makes of a completion."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parsed:
    """One completion, taken apart.

    trace: the reasoning part; null if the scaffold's tags are missing or out of order.
    region: the only text that may be graded; null if the completion never reached an answer. What stands in a
        trace that was opened and never closed is reasoning, in every arm.
    tag_valid: the completion has the scaffold's form, by the rule that was asked for.
    """

    trace: str | None
    region: str | None
    tag_valid: bool
