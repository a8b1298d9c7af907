"""Budgets and prices. Neither enters a fingerprint: a limit only pauses a run, and prices change no result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass as plain
from dataclasses import field, fields
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from storage.errors import UserError
from tasks.domain.ranges import Checked, OrNone, Real

#: The largest value of every limit.
MOST = 1e15
#: None: no limit.
Limit = Annotated[Annotated[Real, Field(gt=0, le=MOST)] | None, OrNone]


# The fields are the units of `Amounts` (storage/records/runs.py).
@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Checked):
    """The most that a run may spend over all of its attempts. At a limit the run pauses until the budget is larger."""

    tokens: Limit = None
    """Tokens of prompts and completions."""
    gpu_hours: Limit = None
    """GPUs × hours. A machine without a GPU counts as one GPU."""
    usd: Limit = None
    """US dollars, computed with the team's prices or the built-in ones."""

    @classmethod
    def parse(cls, text: str | None) -> Budget:
        """Parse the text of `--budget`. Raise UserError with the part that cannot be read.

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
        """Return this budget, and take its missing limits from `usual`.

        >>> Budget(usd=5).over(Budget(usd=20, tokens=2e6))
        Budget(tokens=2000000.0, gpu_hours=None, usd=5.0)
        """
        return Budget(**(usual.limits() | self.limits()))

    def raised(self, by: Budget) -> Budget:
        """Return a budget that adds each limit of `by` to the same limit here. A missing limit stays missing.

        >>> Budget(usd=5).raised(Budget(usd=1, tokens=2e6))
        Budget(tokens=None, gpu_hours=None, usd=6.0)
        """
        more = by.limits()
        return Budget(**{name: min(limit + more.get(name, 0.0), MOST) for name, limit in self.limits().items()})


# ---- prices of tokens and hours

#: US dollars.
Amount = Annotated[float, Field(strict=True, ge=0, le=1e15, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class TokenPrice:
    """US dollars per million tokens. training: tokens that a service trains on; None if the service has no price."""

    prompt: Amount
    completion: Amount
    training: Amount | None = None


@plain(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of tokens by arm, and of hours by device.

    - tokens: by arm; `*` stands for arms without a price of their own.
    - devices: US dollars per hour. A price holds for every device whose name contains its key.
    - device: the device that the profile expects, for estimates.
    - sampled_per_second, trained_per_second: tokens/s of an arm's GPUs, with one sampling engine and one learner
      process. Estimates use them until the store has measured rates.
    - hours_of_sampling: whether this host samples, so that its hours are charged.
    """

    tokens: Mapping[str, TokenPrice] = field(default_factory=dict)
    devices: Mapping[str, float] = field(default_factory=dict)
    device: str = "cpu"
    sampled_per_second: float = 2_000.0
    trained_per_second: float = 2_000.0
    hours_of_sampling: bool = True

    def of_tokens(self, arm: str | None, prompt_tokens: Any, completion_tokens: Any) -> Any:
        """Return US dollars for numbers or arrays of tokens.

        >>> Prices(tokens={"*": TokenPrice(1.0, 4.0)}).of_tokens("panel", 1e6, 5e5)
        3.0
        """
        price = self._of(arm)
        return (price.prompt * prompt_tokens + price.completion * completion_tokens) / 1e6

    def of_training(self, arm: str | None, tokens: float) -> float:
        """Return the US dollars that a training service charges for tokens."""
        return (self._of(arm).training or 0.0) * tokens / 1e6

    def _of(self, arm: str | None) -> TokenPrice:
        return self.tokens.get(arm or "*") or self.tokens.get("*", TokenPrice(0.0, 0.0))

    def of_hours(self, device: str, hours: float) -> float:
        return (self._of_device(device) or 0.0) * hours

    def _of_device(self, device: str) -> float | None:
        return next((usd for name, usd in self.devices.items() if name.lower() in device.lower()), None)

    def unlimited(self, budget: Budget, device: str) -> str:
        """Return why a dollar limit has no effect on work of this device; empty if the limit has an effect.

        >>> Prices().unlimited(Budget(usd=2), "cpu")[:66]
        'the budget in US dollars limits nothing, because cpu has no price;'
        """
        if budget.usd is None or self.tokens or self._of_device(device) is not None:
            return ""
        how = f'write [devices] with "{device}" = … (US dollars an hour; 0 for your own)'
        return f"the budget in US dollars limits nothing, because {device} has no price; {how}"


def plainly(value: float, digits: int = 4) -> str:
    """Return a rounded number as text, without powers of ten.

    >>> plainly(20_000.0), plainly(1_234_567.0), plainly(0.01234, 3), plainly(0.0)
    ('20,000', '1,235,000', '0.0123', '0')
    """
    return f"{float(f'{value:.{digits}g}'):,.12g}"
