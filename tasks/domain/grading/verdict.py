"""A verdict on one rollout, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VerdictName = Literal["correct", "wrong", "no_answer", "ambiguous", "timeout", "ungradable"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """answer: as extracted from the region; canonical: the normal form that was compared; null if there is none."""

    verdict: VerdictName
    reason: str
    answer: str | None
    canonical: str | None

    @property
    def correct(self) -> bool:
        return self.verdict == "correct"
