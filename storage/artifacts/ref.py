"""Refs: typed pointers to immutable artifacts."""

from __future__ import annotations

import re
from dataclasses import dataclass

from storage.errors import UserError

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
HEX = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """`kind-fingerprint`, for example `bands-4f1c2a9b00d1e2f3`. Says what an artifact is, not where it lies."""

    kind: str
    fingerprint: str

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.kind) or not HEX.fullmatch(self.fingerprint):
            raise UserError(f"'{self.kind[:60]}-{self.fingerprint[:20]}' is no artifact reference (kind-16 hex digits)")

    def __str__(self) -> str:
        return f"{self.kind}-{self.fingerprint}"

    @classmethod
    def parse(cls, text: str) -> Ref:
        """
        >>> Ref.parse("bands-4f1c2a9b00d1e2f3").kind
        'bands'
        """
        kind, _, digits = text.rpartition("-")
        if not NAME.fullmatch(kind) or not HEX.fullmatch(digits):
            raise UserError(
                f"'{text[:80]}' is no artifact reference; one looks like bands-4f1c2a9b00d1e2f3 (see: varband ls)"
            )
        return cls(kind, digits)
