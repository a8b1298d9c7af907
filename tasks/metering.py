"""The meter of a run: what is made is charged as it is made, and nothing more is started that the budget cannot hold.

Only the miss path meets it: reused artifacts and rollouts of the ledger cost nothing. A batch is begun if what is
spent and what the batch will take fit the limit. A batch takes what the run's rollouts of that arm have taken on
average, plus MARGIN standard deviations of such a sum; until some are measured, the most that it can take. Time is
looked at after every batch. Several workers of a run know of each other what was charged, not what is being sampled:
together they may exceed the limit by the batches that the others have begun, or where sampling streams by what they
sample in REREAD_SECONDS.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

import numpy as np

from storage.errors import Parked
from storage.records.runs import Amounts, now
from storage.records.spending import Charge, Journal, plus, spent_in_month
from tasks.domain.budget import UNITS, Budget
from tasks.domain.prices import Prices, plainly
from tasks.engines.hardware import Hardware, device_name
from tasks.engines.protocols import Request
from tasks.stage import Progress

#: Kinds of artifacts whose making occupies an accelerator.
OCCUPYING = frozenset({"rollouts", "training", "embeddings", "searches"})
#: Those of them that a remote engine samples.
SAMPLED = frozenset({"rollouts", "searches"})
#: A chunk of fewer rollouts than this is not worth its stragglers; the run parks instead.
SMALLEST_CHUNK = 8
#: Standard deviations of a batch's tokens that are held free beside their mean. That of one completion is taken to be
#: as large as its mean, as of an exponential distribution; sampled lengths scatter less.
MARGIN = 3.0
#: What other workers of the run spent is read again before every batch, and while one is sampled this often.
REREAD_SECONDS = 15.0


#: The end of a sentence about the team's month: of a wall that a worker met its words alone come to the run.
TEAM = "; raise [month] in the root's prices.toml, or go on next month"


class BudgetExceeded(Parked):
    """The next thing to make does not fit what may be spent. team: by all runs of the root this month."""

    def __init__(self, said: str, *, team: bool = False) -> None:
        super().__init__(said + (TEAM if team else ""))


def of_team(wall: Parked) -> bool:
    """Whether more for the run alone would move nothing.

    >>> of_team(Parked(str(BudgetExceeded("spent", team=True)))), of_team(BudgetExceeded("spent"))
    (True, False)
    """
    return str(wall).endswith(TEAM)


def likely_tokens(number_N: np.ndarray, most_N: np.ndarray, mean: float | None) -> np.ndarray:
    """Return tokens_N of so many completions. most_N: the most that they take. mean: None if none was measured.

    >>> likely_tokens(np.array([9, 9]), np.array([9000, 900]), 100.0)
    array([1800.,  900.])
    """
    return most_N if mean is None else np.minimum(most_N, mean * (number_N + MARGIN * np.sqrt(number_N)))


@dataclass(slots=True)
class Meter:
    """Charges to one run's journal and stops it at its budget. hardware: whose hours are charged; where another host
    samples, that is paid by the token. month: of all runs of the root together. here: seconds since the last charge in
    which this host worked beside a remote engine. lengths: mean tokens of each arm's completions so far."""

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
        """What all workers of the run were charged, and where a month has a limit all runs."""
        self.spent, self._read = self.journal.spent(), time.monotonic()
        self.lengths = self.journal.lengths()
        if self.month.limits():
            self.spent_in_month = spent_in_month(self.journal.root, now()[:7])

    def _limits(self) -> list[tuple[str, dict[str, float], Amounts]]:
        """(whose, limits, spent) of every budget that has a limit."""
        both = (("", self.budget, self.spent), ("the team's month: ", self.month, self.spent_in_month))
        return [(whose, limits, spent) for whose, budget, spent in both if (limits := budget.limits())]

    def listening(self, listener: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """The listener of the run, with the meter between: it sees steps begin and end, and adds what was spent."""

        def on_progress(event: Progress) -> None:
            if event.event == "started" and event.ref.kind in OCCUPYING:
                self._step, self._last = event, time.monotonic()
                self.check()
            elif event.event == "made" and self._step is not None and event.ref == self._step.ref:
                self.close_step()
            elif event.event == "advanced":
                event = replace(event, detail=" · ".join(filter(None, [event.detail, self.words()])))
            listener(event)

        return on_progress

    def admit(self, requests: Sequence[Request], arms: Sequence[str], *, whole: bool) -> int:
        """Return how many of the requests, from the first, may be sampled now.

        whole: all or none. Errors: BudgetExceeded if none fit.
        """
        if self._limits():
            self._reread()
        self.check()
        tokens_N, usd_N = np.zeros(len(requests)), np.zeros(len(requests))
        for arm in dict.fromkeys(arms):
            mine_N = np.array([one == arm for one in arms])
            prompt_N = np.cumsum(mine_N * [len(request.prompt_ids) for request in requests])
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

    def charge(self, rows: Sequence[dict[str, object]]) -> None:
        """Enter finished rollouts (rows of storage.artifacts.schemas.LEDGER) and the time since the last charge."""
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
        """Errors: BudgetExceeded if a limit is reached, by this process or by another worker of the run."""
        if self._limits() and time.monotonic() - self._read > REREAD_SECONDS:
            self._reread()
        for whose, limits, spent in self._limits():
            for name, limit in limits.items():
                if getattr(spent, name) >= limit:
                    said = f"{whose}the budget of {plainly(limit)} {UNITS[name]} is spent ({self.words()})"
                    raise BudgetExceeded(said, team=bool(whose))

    def words(self) -> str:
        """What was spent, of what, in a few words; empty without a budget."""
        return "; ".join(
            whose + ", ".join(f"{plainly(getattr(spent, n))} of {plainly(v)} {UNITS[n]}" for n, v in limits.items())
            for whose, limits, spent in self._limits()
        )

    def _hours(self) -> float:
        """Device-hours since the last charge; while a remote engine samples, of what is done here besides."""
        if self._step is None:
            return 0.0
        moment = time.monotonic()
        seconds, self._last = moment - self._last, moment
        if self.hardware.engine == "openai" and self._step.ref.kind in SAMPLED:
            seconds = self.here
        self.here = 0.0
        return seconds * self.hardware.gpus / 3600

    def _entry(self, arm: str | None, hours: float, usd: float, **amounts: int) -> Charge:
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
            **amounts,
        )

    def _enter(self, entries: list[Charge]) -> None:
        self.journal.enter(entries)
        self.spent, self.spent_in_month = plus(self.spent, entries), plus(self.spent_in_month, entries)


def _total(rows: Sequence[dict[str, object]], column: str) -> int:
    return sum(int(row[column]) for row in rows)  # type: ignore[call-overload]


_meter: ContextVar[Meter | None] = ContextVar("varband_meter", default=None)


def meter() -> Meter | None:
    """The meter of this run; null where nobody counts."""
    return _meter.get()


@contextmanager
def at_work_here() -> Iterator[None]:
    """The block is this host's work, whoever samples."""
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
    """Everything made in the block is charged to the meter, time of an unfinished step included. Yields the listener to
    make it with, which sits before the given one."""
    token = _meter.set(current)
    try:
        yield current.listening(listener)
    finally:
        current.close_step()
        _meter.reset(token)
