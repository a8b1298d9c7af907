"""What a report says of its study beside the artifacts that it is made from (storage.artifacts.kinds.report), and what
its figures may read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from storage.artifacts.kinds.report import ALWAYS, SOMETIMES
from storage.artifacts.manifest import Group
from storage.reading.figures import FIGURES, check_sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup(Group):
    """What was asked. arms: in the order in which everything lists and colours them. model: its name, a label.
    title, about: what a team calls its own study and says of it, labels."""

    profile: str
    purpose: str
    question: str
    model: str = field(compare=False)
    arms: tuple[str, ...]
    title: str = field(default="", compare=False)
    about: str = field(default="", compare=False)


def check_figures(measures: Iterable[str]) -> None:
    """measures: names of the standard ones. Errors: UserError for a figure of neither one nor a field of a report."""
    check_sources(FIGURES.values(), {*ALWAYS, *SOMETIMES, *measures})
