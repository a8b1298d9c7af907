"""Sessions and meters: the only place where a process opens and closes engines, and where their work is charged."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from flows.study.prices import team_prices
from flows.study.resolve import Study
from storage.artifacts.store import Store
from storage.records.spending import Journal
from tasks.domain.budget import Budget, Prices
from tasks.domain.grading.grading import ActiveGrader
from tasks.engines.hardware import Hardware
from tasks.engines.toolbox import Toolbox
from tasks.grading import active_grader
from tasks.metering import Meter
from tasks.stage import Progress, Session, session

Listener = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """Ignore every event."""


def one_after_another(*listeners: Listener) -> Listener:
    """Return a listener that passes each event to these listeners, in order."""

    def on_progress(event: Progress) -> None:
        for listener in listeners:
            listener(event)

    return on_progress


def engines(
    hardware: Hardware, places: Mapping[str, Path], grader: ActiveGrader, ranks: Mapping[str, int] | None = None
) -> closing[Toolbox]:
    """Return the engines of a process, which are created on first use and closed at the end of the block."""
    return closing(Toolbox(hardware, dict(places), grader, ranks or {}))


@contextmanager
def stages_on(
    store: Store,
    listener: Listener = silent,
    *,
    hardware: Hardware | None = None,
    places: Mapping[str, Path] | None = None,
    grader: ActiveGrader | None = None,
    ranks: Mapping[str, int] | None = None,
    **orchestration: Any,
) -> Iterator[Session]:
    """Run the block's stage calls on this store. Engines are created on first use, and closed at the end. grader: the
    store's active one if None. orchestration: further fields of Session."""
    with (
        engines(hardware or Hardware(), places or {}, grader or active_grader(store.root), ranks) as tools,
        session(Session(store, tools, listener=listener, **orchestration)) as current,
    ):
        yield current


def left_out(kinds: Sequence[str]) -> frozenset[str]:
    """Return the kinds that are left out. With embeddings these include calibrations, because both need the encoder.

    >>> sorted(left_out(["embeddings"])), sorted(left_out(["report"]))
    (['calibrations', 'embeddings'], ['report'])
    """
    return frozenset(kinds) | ({"calibrations"} if "embeddings" in kinds else frozenset())


@contextmanager
def stages_of(study: Study, store: Store, listener: Listener = silent, **orchestration: Any) -> Iterator[Session]:
    """Run the block's stage calls with the engines, models and grader of a study, as `stages_on` does."""
    hardware, without = study.profile.hardware, left_out(study.profile.hardware.without)
    known: dict[str, Any] = {"places": study.places, "grader": study.grader, "ranks": study.served}
    with stages_on(store, listener, hardware=hardware, without=without, **known, **orchestration) as current:
        yield current


@dataclass(frozen=True, slots=True, kw_only=True)
class Charging:
    """The run that is charged, its budget over all attempts, and prices. month: the root's monthly limit."""

    run: str
    budget: Budget = field(default_factory=Budget)
    prices: Prices = field(default_factory=Prices)
    month: Budget = field(default_factory=Budget)

    @classmethod
    def of(cls, study: Study, store: Store, run: str, budget: Budget) -> Self:
        """Return the charging of a run. Raise UserError for unreadable prices, or for missing ones if dollars are
        limited."""
        team, hardware = team_prices(store.root), study.profile.hardware
        prices = team.of(study.profile.name, hardware, study.on_server)
        team.check_limits(prices, hardware, budget, store.root, study.on_server)
        return cls(run=run, budget=budget, prices=prices, month=team.month)

    def meter(self, hardware: Hardware, store: Store) -> Meter:
        return Meter(Journal(store.root, self.run), self.budget, self.prices, hardware, month=self.month)
