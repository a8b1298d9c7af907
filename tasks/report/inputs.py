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
    Labels too: title, about, what a team calls its own study and says of it; changes, what differs from the profile
    that it is based on; settings, all of it as a file; prompts, of each arm as it is asked; command, that asks for it.
    """

    profile: str
    purpose: str
    question: str
    model: str = field(compare=False)
    arms: tuple[str, ...]
    title: str = field(default="", compare=False)
    about: str = field(default="", compare=False)
    changes: tuple[str, ...] = field(default=(), compare=False)
    settings: str = field(default="", compare=False)
    prompts: tuple[str, ...] = field(default=(), compare=False)
    command: str = field(default="", compare=False)


def check_figures(measures: Iterable[str]) -> None:
    """measures: names of the standard ones. Errors: UserError for a figure of neither one nor a field of a report."""
    check_sources(FIGURES.values(), {*ALWAYS, *SOMETIMES, *measures})
