"""Budgets: limits on spending. They enter no recipe: a reached limit pauses a run and changes no result."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from storage.errors import UserError
from tasks.domain.ranges import Checked, OrNone, Real

#: The largest limit, of each kind.
MOST = 1e15
#: The units of a budget in display order, with their names.
UNITS = {"tokens": "tokens", "gpu_hours": "GPU-hours", "usd": "US dollars"}
#: None: no limit.
Limit = Annotated[Annotated[Real, Field(gt=0, le=MOST)] | None, OrNone]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Checked):
    """The most that a run may spend over all of its attempts."""

    tokens: Limit = None
    """Tokens of prompts and completions."""
    gpu_hours: Limit = None
    """GPUs × hours. A machine without a GPU counts as one."""
    usd: Limit = None
    """US dollars, by the prices of profile and team."""

    @classmethod
    def parse(cls, text: str | None) -> Budget:
        """Parse LIMITS of the command line. Errors: UserError naming the part that cannot be read.

        >>> Budget.parse("tokens=2e6,usd=20")
        Budget(tokens=2000000.0, gpu_hours=None, usd=20.0)
        """
        parts = [part.partition("=") for part in (text or "").replace(" ", "").split(",") if part]
        try:
            return cls(**{name: float(number) for name, _, number in parts})
        except (ValueError, UserError) as error:
            raise UserError(f"--budget {text}: {error}; write e.g. tokens=2e6,gpu_hours=3,usd=20") from None

    def limits(self) -> dict[str, float]:
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    def over(self, usual: Budget) -> Budget:
        """Return this budget, with missing limits from `usual`.

        >>> Budget(usd=5).over(Budget(usd=20, tokens=2e6))
        Budget(tokens=2000000.0, gpu_hours=None, usd=5.0)
        """
        return Budget(**(usual.limits() | self.limits()))
