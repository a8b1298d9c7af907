"""The meter of a run. The meter charges costs as they occur, and allows no work that would exceed the budget.

Reused artifacts and rollouts cost nothing. A batch starts if spending plus its expected cost is within the limit. The
expected cost is the mean of the run's rollouts of that arm plus MARGIN standard deviations of the sum. Before anything
is measured, it is the largest possible cost. The time that a run has used is checked after every batch.

Workers of a run read each other's charges, but do not see each other's running batches. Together they may exceed the
limit by these batches, or, if rollouts are streamed, by the rollouts of REREAD_SECONDS.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from storage.errors import Parked, UserError
from storage.records.runs import UNITS, Amounts, now
from storage.records.spending import PRICES, Charge, Journal, plus, spent_in_month
from tasks.domain.budget import Budget, Prices, plainly
from tasks.engines.hardware import Hardware, device_name
from tasks.engines.protocols import Request
from tasks.stage import Progress

#: Kinds of artifacts that need an accelerator.
OCCUPYING = frozenset({"rollouts", "training", "embeddings", "searches"})
#: What a stage reports between its engine's start and its first rollouts.
SAMPLING = "no rollout has ended yet"
#: Kinds of artifacts that a remote engine can sample.
SAMPLED = frozenset({"rollouts", "searches"})
#: If fewer rollouts than this fit the budget, the run pauses.
SMALLEST_CHUNK = 8
#: Reserve for a batch, in standard deviations of its tokens. The standard deviation of one completion is taken to be
#: the mean, as in an exponential distribution; real lengths vary less.
MARGIN = 3.0
#: Seconds after which other workers' spending is read again during sampling. It is also read before every batch.
REREAD_SECONDS = 15.0


#: End of a message about the team's monthly limit. A worker receives only the message, and recognises the limit by it.
TEAM = "; raise [month] in the root's prices.toml, or resume the run next month"


class BudgetExceeded(Parked):
    """The budget does not allow the next work. team: the limit is the monthly budget of all runs of the root."""

    def __init__(self, reason: str, *, team: bool = False) -> None:
        super().__init__(reason + (TEAM if team else ""))


def of_team(wall: Parked) -> bool:
    """Return whether the team's limit was reached, so that a larger budget of the run would not help.

    >>> of_team(Parked(str(BudgetExceeded("spent", team=True)))), of_team(BudgetExceeded("spent"))
    (True, False)
    """
    return str(wall).endswith(TEAM)


def likely_tokens(number_N: np.ndarray, most_N: np.ndarray, mean: float | None) -> np.ndarray:
    """Return the expected tokens_N of completions, with a reserve. most_N: upper bound. mean: measured mean, or None.

    >>> likely_tokens(np.array([9, 9]), np.array([9000, 900]), 100.0)
    array([1800.,  900.])
    """
    return most_N if mean is None else np.minimum(most_N, mean * (number_N + MARGIN * np.sqrt(number_N)))


@dataclass(slots=True)
class Meter:
    """Charges the journal of one run, and stops the run at its budget.

    - hardware: the hours of this machine are charged. A remote host is paid by tokens instead.
    - month: monthly limit of all runs of the root.
    - here: seconds since the last charge in which this host worked while the engine was remote.
    - lengths: mean tokens of a completion, by arm.
    """

    journal: Journal
    budget: Budget = field(default_factory=Budget)
    prices: Prices = field(default_factory=Prices)
    hardware: Hardware = field(default_factory=Hardware)
    month: Budget = field(default_factory=Budget)
    spent: Amounts = field(default_factory=Amounts)
    spent_in_month: Amounts = field(default_factory=Amounts)
    lengths: dict[str, float] = field(default_factory=dict)
    here: float = 0.0
    _step: Progress | None = None
    _last: float = 0.0
    _read: float = 0.0

    def __post_init__(self) -> None:
        self._reread()

    def _reread(self) -> None:
        """Read the charges of all workers of the run; with a monthly limit, also those of all runs."""
        self.spent, self._read = self.journal.spent(), time.monotonic()
        self.lengths = self.journal.lengths()
        if self.month.limits():
            self.spent_in_month = spent_in_month(self.journal.root, now()[:7])

    def _limits(self) -> list[tuple[str, dict[str, float], Amounts]]:
        """Return (whose budget, limits, spent) of each budget that has a limit."""
        both = (("", self.budget, self.spent), ("the team's month: ", self.month, self.spent_in_month))
        return [(whose, limits, spent) for whose, budget, spent in both if (limits := budget.limits())]

    def listening(self, listener: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Return a listener that notices steps, adds spending to events, and passes the events to `listener`."""

        def on_progress(event: Progress) -> None:
            if event.event == "started" and event.ref.kind in OCCUPYING:
                if not self.hardware.remote and (why := self.prices.unlimited(self.budget, device_name())):
                    raise UserError(f"{self.journal.root / PRICES}: {why}")
                self._step, self._last = event, time.monotonic()
                self.check()
            elif event.event == "made" and self._step is not None and event.ref == self._step.ref:
                self.close_step()
            elif event.event == "advanced":
                event = replace(event, detail=" · ".join(filter(None, [event.detail, self.words()])))
            listener(event)

        return on_progress

    def admit(self, requests: Sequence[Request], arms: Sequence[str], *, whole: bool) -> int:
        """Return how many of the first requests may start. whole: all or none. Raise BudgetExceeded for none."""
        if self._limits():
            self._reread()
        self.check()
        tokens_N, usd_N = np.zeros(len(requests)), np.zeros(len(requests))
        for arm in dict.fromkeys(arms):
            mine_N = np.array([one == arm for one in arms])
            prompt_N = np.cumsum(mine_N * [request.num_prompt_tokens for request in requests])
            most_N = np.cumsum(mine_N * [request.decoding.max_tokens for request in requests])
            likely_N = likely_tokens(np.cumsum(mine_N), most_N, self.lengths.get(arm))
            tokens_N += prompt_N + likely_N
            usd_N += self.prices.of_tokens(arm, prompt_N, likely_N)
        count, over = len(requests), ""
        for whose, limits, spent in self._limits():
            fits_N = spent.tokens + tokens_N <= limits.get("tokens", math.inf)
            fits_N &= spent.usd + usd_N <= limits.get("usd", math.inf)
            if (fitting := int(fits_N.sum())) < count:
                count, over = fitting, whose
        if count < (len(requests) if whole else min(len(requests), SMALLEST_CHUNK)):
            most = f"the next {len(requests)} rollouts may take" if whole else "the next rollouts may take"
            raise BudgetExceeded(f"{over}{most} more than the budget leaves ({self.words()})", team=bool(over))
        return count

    def pay_for_training(self, arm: str, tokens: int, key: str = "") -> None:
        """Charge the tokens of an update before they are sent to a service. A key is charged only once. Raise
        BudgetExceeded if the budget does not allow the tokens."""
        if key and self.journal.has(key):
            return
        if self._limits():
            self._reread()
        self.check()
        usd = self.prices.of_training(arm, tokens)
        for whose, limits, spent in self._limits():
            if spent.tokens + tokens > limits.get("tokens", math.inf) or spent.usd + usd > limits.get("usd", math.inf):
                reason = f"{whose}the next update takes more than the budget leaves ({self.words()})"
                raise BudgetExceeded(reason, team=bool(whose))
        self._enter([self._entry(arm, self._hours(), usd, prompt_tokens=tokens, tokens=tokens, key=key)])

    def charge(self, rows: Sequence[dict[str, object]]) -> None:
        """Charge finished rollouts (rows of LEDGER), and the time since the last charge."""
        by_arm: dict[str, list[dict[str, object]]] = defaultdict(list)
        for row in rows:
            by_arm[str(row["arm"])].append(row)
        hours = self._hours()
        entries = []
        for arm, part in by_arm.items():
            prompt, completion = _total(part, "num_prompt_tokens"), _total(part, "num_tokens")
            usd, share = self.prices.of_tokens(arm, prompt, completion), hours * len(part) / len(rows)
            bought = {"rollouts": len(part), "correct": _total(part, "correct")}
            entries.append(self._entry(arm, share, usd, prompt_tokens=prompt, tokens=prompt + completion, **bought))
        self._enter(entries)

    def close_step(self) -> None:
        """Charge the time since the last charge, and end the step."""
        if self._step is not None:
            if hours := self._hours():
                self._enter([self._entry(None, hours, 0.0)])
            self._step = None

    def check(self) -> None:
        """Raise BudgetExceeded if this process or another worker reached a limit."""
        if self._limits() and time.monotonic() - self._read > REREAD_SECONDS:
            self._reread()
        for whose, limits, spent in self._limits():
            for name, limit in limits.items():
                if getattr(spent, name) >= limit:
                    reason = f"{whose}the budget of {plainly(limit)} {UNITS[name]} is spent ({self.words()})"
                    raise BudgetExceeded(reason, team=bool(whose))

    def words(self) -> str:
        """Return spending and limits as text; empty if there is no budget."""
        return "; ".join(
            whose + ", ".join(f"{plainly(getattr(spent, n))} of {plainly(v)} {UNITS[n]}" for n, v in limits.items())
            for whose, limits, spent in self._limits()
        )

    def _hours(self) -> float:
        """Return the device-hours since the last charge; with a remote engine, only the work of this host."""
        if self._step is None:
            return 0.0
        moment = time.monotonic()
        seconds, self._last = moment - self._last, moment
        elsewhere = SAMPLED | ({"training"} if self.hardware.engine == "tinker" else set())
        if self.hardware.remote and self._step.ref.kind in elsewhere:
            seconds = self.here
        self.here = 0.0
        return seconds * self.hardware.gpus / 3600

    def _entry(self, arm: str | None, hours: float, usd: float, **more: Any) -> Charge:
        ref, title = (str(self._step.ref), self._step.title) if self._step else ("", "")
        device = device_name()
        usd += self.prices.of_hours(device, hours)
        return Charge(
            time=now(),
            ref=ref,
            kind=ref.rpartition("-")[0],
            title=title,
            arm=arm,
            gpu_hours=hours,
            usd=usd,
            device=device,
            **more,
        )

    def _enter(self, entries: list[Charge]) -> None:
        self.journal.enter(entries)
        self.spent, self.spent_in_month = plus(self.spent, entries), plus(self.spent_in_month, entries)


def _total(rows: Sequence[dict[str, object]], column: str) -> int:
    return sum(int(row[column]) for row in rows)  # type: ignore[call-overload]


_meter: ContextVar[Meter | None] = ContextVar("varband_meter", default=None)


def meter() -> Meter | None:
    """Return the meter of this run; None outside a run."""
    return _meter.get()


@contextmanager
def at_work_here() -> Iterator[None]:
    """Count the block as work of this host, even if the engine is remote."""
    current, began = meter(), time.monotonic()
    try:
        yield
    finally:
        if current is not None:
            current.here += time.monotonic() - began


@contextmanager
def metered(
    current: Meter, listener: Callable[[Progress], None] = lambda _: None
) -> Iterator[Callable[[Progress], None]]:
    """Charge everything that is made in the block. Yield a listener that counts costs and passes events on."""
    token = _meter.set(current)
    try:
        yield current.listening(listener)
    finally:
        current.close_step()
        _meter.reset(token)
