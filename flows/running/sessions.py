"""Sessions and meters: the one place where a process's engines are opened and closed and their work is charged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.study.prices import team_prices
from flows.study.resolve import Study
from storage.artifacts.store import Store
from storage.records.spending import Journal
from tasks.domain.budget import Budget
from tasks.domain.grading.grading import ActiveGrader
from tasks.domain.prices import Prices
from tasks.engines.hardware import Hardware
from tasks.engines.toolbox import Toolbox
from tasks.grading import active_grader
from tasks.metering import Meter
from tasks.stage import Progress, Session, session

Listener = Callable[[Progress], None]


def unheard(_: Progress) -> None:
    """The listener of what nobody watches."""


@contextmanager
def engines(
    hardware: Hardware, places: Mapping[str, Path], grader: ActiveGrader, ranks: Mapping[str, int] | None = None
) -> Iterator[Toolbox]:
    """The engines of this process, each made on first use; closed at the end."""
    tools = Toolbox(hardware, dict(places), grader, ranks or {})
    try:
        yield tools
    finally:
        tools.close()


@contextmanager
def stages_on(
    store: Store,
    listener: Listener = unheard,
    *,
    hardware: Hardware | None = None,
    places: Mapping[str, Path] | None = None,
    grader: ActiveGrader | None = None,
    ranks: Mapping[str, int] | None = None,
    **orchestration: Any,
) -> Iterator[Session]:
    """Stages that are called in the block work on this store. grader: null, the one that is active in it.

    orchestration: what else a session may have: planning, wrap, group, before.
    """
    with (
        engines(hardware or Hardware(), places or {}, grader or active_grader(store.root), ranks) as tools,
        session(Session(store, tools, listener=listener, **orchestration)) as current,
    ):
        yield current


def left_out(kinds: Sequence[str]) -> frozenset[str]:
    """These kinds, and calibrations where embeddings are: the encoder may be on another machine.

    >>> sorted(left_out(["embeddings"])), sorted(left_out(["report"]))
    (['calibrations', 'embeddings'], ['report'])
    """
    return frozenset(kinds) | ({"calibrations"} if "embeddings" in kinds else frozenset())


@contextmanager
def stages_of(study: Study, store: Store, listener: Listener = unheard, **orchestration: Any) -> Iterator[Session]:
    """The same with all that the study was resolved to."""
    hardware = study.profile.hardware
    with stages_on(
        store,
        listener,
        hardware=hardware,
        places=study.places,
        grader=study.grader,
        ranks=study.served,
        without=left_out(hardware.without),
        **orchestration,
    ) as current:
        yield current


@dataclass(frozen=True, slots=True, kw_only=True)
class Charging:
    """Which run pays for what is made, the most that it may spend over all of its attempts, and at what prices.

    month: the most that all runs of the root may spend in a month.
    """

    run: str
    budget: Budget = field(default_factory=Budget)
    prices: Prices = field(default_factory=Prices)
    month: Budget = field(default_factory=Budget)

    @classmethod
    def of(cls, study: Study, store: Store, run: str, budget: Budget) -> Charging:
        """Errors: UserError for prices that cannot be read, or that a limit on money needs and nobody wrote."""
        return cls.apart(study.profile.name, study.profile.hardware, store, run, budget)

    @classmethod
    def apart(cls, profile: str, hardware: Hardware, store: Store, run: str, budget: Budget) -> Charging:
        """The same of what is no study."""
        team = team_prices(store.root)
        prices = team.of(profile, hardware)
        team.check_limits(prices, hardware, budget, store.root)
        return cls(run=run, budget=budget, prices=prices, month=team.month)

    def meter(self, study: Study, store: Store) -> Meter:
        return self.meter_on(study.profile.hardware, store)

    def meter_on(self, hardware: Hardware, store: Store) -> Meter:
        return Meter(Journal(store.root, self.run), self.budget, self.prices, hardware, month=self.month)
