"""Arms: a scaffold with its base model and adapter. A new arm is one entry here; its prompt is a scaffold."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.domain.scaffolds import NO_PANEL, PANEL, THINK_TAGS, THINKING, Scaffold


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """An arm of the experiment.

    trained_as: the arm whose adapter this arm is evaluated with; its own name for an arm that trains; None for an arm
    that is screened and evaluated without training, such as a reference. model: name of its base model; empty: the
    model of the arm whose adapter it has, else the study's. adapter: an imported adapter on that base, which the arm
    starts from, or is; empty for none.
    """

    name: str
    scaffold: Scaffold
    trained_as: str | None
    model: str = ""
    adapter: str = ""

    @property
    def trains(self) -> bool:
        return self.trained_as == self.name

    @property
    def head(self) -> str:
        """The arm with whose training it is evaluated, or its own name."""
        return self.trained_as or self.name


ARMS = {
    a.name: a
    for a in (
        Arm(name="panel", scaffold=PANEL, trained_as="panel"),
        Arm(name="thinking", scaffold=THINKING, trained_as="thinking"),
        Arm(name="no_panel", scaffold=NO_PANEL, trained_as="panel"),
        Arm(name="think_tags", scaffold=THINK_TAGS, trained_as="think_tags"),
    )
}
