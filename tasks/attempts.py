"""What is tried arm by arm: a failure of one does not end the others."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from storage.errors import ArmsFailed, Notice, Parked, UserError, disk_fault
from storage.stopping import was_stopped
from tasks.stage import planning

T = TypeVar("T")


@dataclass(slots=True)
class Attempts:
    """Arms that failed, and why. An arm that fails is reported at once, and the others go on.

    A budget limit and a stop concern all arms: they end the run where they occur.
    catching: whether there are other arms to go on with.
    """

    catching: bool = True
    failed: dict[str, UserError] = field(default_factory=dict)

    @classmethod
    def of(cls, arms: Sequence[str]) -> Attempts:
        return cls(catching=len(arms) > 1 and not planning())

    def each(self, arms: Iterable[str], make: Callable[[str], T]) -> dict[str, T]:
        """Return what could be made, by arm."""
        made: dict[str, T] = {}
        for arm in dict.fromkeys(arms):
            try:
                made[arm] = make(arm)
            except Exception as error:
                if not self.catching or isinstance(error, Parked) or was_stopped():
                    raise
                self.note(arm, error)
        return made

    def note(self, arm: str, error: Exception) -> None:
        """Report a failure. Only its text is kept: the error itself would keep models in memory."""
        text = str(error) if isinstance(error, UserError) else disk_fault(error)
        if text is None:
            traceback.print_exception(error)
            text = f"{type(error).__name__}: {error}"
        self.failed[arm] = (Parked if isinstance(error, Parked) else ArmsFailed)(text)
        warnings.warn(Notice(f"{arm} failed: {text}"), stacklevel=2)

    def finish(self, arms: Sequence[str]) -> None:
        """Errors: ArmsFailed if any failed; Parked if all of these were only lost."""
        if self.failed:
            reasons = "; ".join(f"{arm}: {why}" for arm, why in self.failed.items())
            kind = Parked if all(isinstance(why, Parked) for why in self.failed.values()) else ArmsFailed
            raise kind(f"{len(self.failed)} of {len({*arms, *self.failed})} arms failed: {reasons}")
