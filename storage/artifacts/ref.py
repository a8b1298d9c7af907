"""Refs: typed references to immutable artifacts. A kind is a subclass that owns the schema of its rows."""

import re
from dataclasses import dataclass
from typing import ClassVar, Self

import pyarrow as pa

from storage.errors import UserError

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
HEX = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, eq=False)
class Ref:
    """The name of an artifact, `kind-fingerprint`, for example `bands-4f1c2a9b00d1e2f3`. A ref does not depend on the
    path. Stages take and return subclasses (`storage.artifacts.schemas`). A plain Ref has an unknown kind."""

    kind: str
    fingerprint: str

    KIND: ClassVar[str] = ""
    #: Prefix of files with model weights; None for a kind without weights.
    WEIGHTS: ClassVar[str | None] = None
    schema: ClassVar[pa.Schema]

    def __init_subclass__(cls, *, kind: str, schema: pa.Schema | None = None) -> None:
        """Register a kind. schema: the parent's if None. Raise TypeError if another class has the same name."""
        if (other := KINDS.get(kind)) and other.__qualname__ != cls.__qualname__:
            raise TypeError(f"the kind {kind} is already defined by {other.__qualname__}")
        cls.KIND, KINDS[kind] = kind, cls
        if schema is not None:
            cls.schema = schema

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.kind) or not HEX.fullmatch(self.fingerprint):
            text = f"'{str(self).removeprefix('-')[:80]}' is not an artifact's ref"
            raise UserError(f"{text}; a ref looks like bands-4f1c2a9b00d1e2f3 (see: varband store ls)")

    def starts(self, text: str) -> bool:
        """Return whether a non-empty text is the beginning of this ref or of its fingerprint."""
        return bool(text) and (str(self).startswith(text) or self.fingerprint.startswith(text))

    def __str__(self) -> str:
        return f"{self.kind}-{self.fingerprint}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and (self.kind, self.fingerprint) == (other.kind, other.fingerprint)

    def __hash__(self) -> int:
        return hash((self.kind, self.fingerprint))

    def __lt__(self, other: "Ref") -> bool:
        return (self.kind, self.fingerprint) < (other.kind, other.fingerprint)

    @classmethod
    def of(cls, fingerprint: str) -> Self:
        return cls(cls.KIND, fingerprint)

    @staticmethod
    def named(name: str) -> "Ref | None":
        """Return the ref of an artifact's folder; None if the folder holds no artifact.

        >>> Ref.named("bands-4f1c2a9b00d1e2f3.bak") is None
        True
        """
        kind, _, digits = name.rpartition("-")
        return Ref.parse(name) if NAME.fullmatch(kind) and HEX.fullmatch(digits) else None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a ref. Raise UserError if the text is not a ref, or a ref of another kind than this class.

        >>> Ref.parse("bands-4f1c2a9b00d1e2f3").kind
        'bands'
        """
        kind, _, digits = text.rpartition("-")
        found = KINDS.get(kind, Ref)(kind, digits)
        if not isinstance(found, cls):
            raise UserError(f"{text} is an artifact of kind {kind}, but this needs kind {cls.KIND}")
        return found


#: Every kind whose class was imported, by name.
KINDS: dict[str, type[Ref]] = {}
