"""Pieces: what of a study one worker makes apart: a training, embeddings, a search, a sampling or a shard of one.

Workers are processes of this machine (`processes.py`) or a pool of Prefect's (`on_prefect.py`). Both fill the store,
and whoever dispatched the pieces makes what costs little in between. A shard is how a sampling is carried out and no
part of any name: its rollouts go to the ledger, and when all shards are there whoever wants the artifact gathers it.
Shards fill whole batches, so they are batched as the whole is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from flows.experiment import experiment
from flows.running.plan import plan
from flows.running.sessions import Listener, stages_of
from flows.study.resolve import Study
from storage.artifacts.fingerprint import fingerprint
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import ArmsFailed, Parked, UserError
from tasks.domain.policies import Policy
from tasks.metering import OCCUPYING
from tasks.rollouts import account_of
from tasks.sampling import SHARDED, enter_shard, open_shards
from tasks.stage import Step

Dag = Callable[[Study], object]
#: What a worker makes; calibrations need the encoder, as embeddings do.
COSTLY = OCCUPYING | {"calibrations"}


@dataclass(frozen=True, slots=True)
class Piece:
    """ref: of the artifact that it is for. shard: its place among those of a sampling; None for the whole artifact.
    arm: whose policy is sampled or trained."""

    ref: Ref
    title: str
    shard: int | None = None
    arm: str = ""

    @property
    def key(self) -> str:
        return str(self.ref) if self.shard is None else f"{self.ref}:{self.shard}"

    @property
    def name(self) -> str:
        return self.title if self.shard is None else f"{self.title}, shard {self.shard}"


class Lost(Parked):
    """The worker's process ended early; the others go on, and so does the piece with the next attempt of the run."""


class Workers(Protocol):
    """Who makes pieces."""

    def begin(self, piece: Piece) -> None:
        """Have it made as soon as there is room for it."""
        ...

    def ended(self) -> Iterable[tuple[Piece, UserError | None]]:
        """Return pieces that have ended since the last call, each with what stopped it; wait for the first."""
        ...


def dispatch(wanted: Callable[[set[str]], Sequence[Piece]], workers: Workers, tell: Callable[[str], None]) -> None:
    """See every piece made. Returns when nothing is wanted any more.

    wanted: told the keys of what is done, says what can be made now; what is under way may be among it.
    Errors: Parked if one met its budget, once what is under way has ended. ArmsFailed if one failed, once everything
    else is made; Parked if its worker was lost.
    """
    done, under_way, failed = set[str](), set[str](), dict[str, tuple[str, UserError]]()
    limits = list[Parked]()
    while True:
        for piece in wanted(done) if not limits else ():
            if piece.key not in under_way and piece.key not in failed:
                under_way.add(piece.key)
                workers.begin(piece)
        if not under_way:
            break
        for piece, error in workers.ended():
            under_way.remove(piece.key)
            if error is None:
                done.add(piece.key)
                continue
            failed[piece.key] = piece.name, error
            if isinstance(error, Parked) and not isinstance(error, Lost):
                limits.append(error)
            else:
                tell(f"{piece.name} failed: {error}")
    if limits:
        raise limits[0]
    if failed:
        kind = Parked if all(isinstance(error, Lost) for _, error in failed.values()) else ArmsFailed
        raise kind("; ".join(f"{name} failed: {error}" for name, error in failed.values()))


def next_pieces(
    study: Study,
    store: Store,
    listener: Listener,
    done: set[str],
    dag: Dag = experiment,
    *,
    in_shards: bool = True,
    no_more: Callable[[], None] | None = None,
) -> list[Piece]:
    """Return what can be made now and is not done, after everything that costs little was made here, such as an
    artifact whose shards are all done. done: keys of pieces; those that are found in the ledger are added. no_more: is
    called before the last of that, when no piece will follow."""
    _, others = _open(study, store, done, dag, in_shards)
    if no_more and not others:
        no_more()
    with stages_of(study, store, listener, elsewhere=others):
        dag(study)
    return _open(study, store, done, dag, in_shards)[0]


def _open(study: Study, store: Store, done: set[str], dag: Dag, in_shards: bool) -> tuple[list[Piece], frozenset[Ref]]:
    """Pieces that can be made, and what is not to be made here."""
    pieces: list[Piece] = []
    others = set[Ref]()
    at_work: dict[str, Ref] = {}
    planned = [p.step for p in plan(study, store, dag) if p.made_here and p.step.ref.kind in COSTLY]
    samplings = {_sampling_of(step, "policy", "sampling") for step in planned if step.recipe.stage in SHARDED}
    with stages_of(study, store):
        for step in planned:
            if step.recipe.stage == "regrade_rollouts":  # it samples nothing
                continue
            can = all(map(store.fresh, step.awaited)) and not (
                "evaluation" in step.arguments and _sampling_of(step, "start", "evaluation") in samplings
            )
            left = list(_pieces_of(step, study, done, in_shards)) if can else []
            if left or not can:
                others.add(step.ref)
            # two samplings of one policy share rollouts: at once, both would pay for them
            policy = step.arguments.get("policy")
            if left and policy is not None and at_work.setdefault(fingerprint(policy.identity()), step.ref) != step.ref:
                continue
            pieces += left
    return pieces, frozenset(others)


def _sampling_of(step: Step, policy: str, sampling: str) -> tuple[object, ...]:
    """Whose rollouts of which problems a step asks for. A training evaluates its start, in one engine call with its
    first step: at once with a sampling of the same, both would pay for them."""
    given = step.arguments
    return account_of(given[policy], given[sampling]), given["pool"], given["splits"]


def _pieces_of(step: Step, study: Study, done: set[str], in_shards: bool) -> Iterator[Piece]:
    arm = next((value.arm for value in step.arguments.values() if isinstance(value, Policy)), "")
    if step.recipe.stage not in SHARDED or not in_shards:
        if str(step.ref) not in done:
            yield Piece(step.ref, step.title, arm=arm)
        return
    known = {int(shard) for ref, _, shard in (key.rpartition(":") for key in done) if ref == str(step.ref)}
    for shard in open_shards(step, study.profile.hardware.shard_rollouts, known):
        yield Piece(step.ref, step.title, shard, arm)
    done |= {f"{step.ref}:{shard}" for shard in known}


def piece_step(study: Study, store: Store, ref: Ref, dag: Dag = experiment) -> Step:
    """On a worker. Errors: UserError for what this worker's study does not make."""
    step = next((p.step for p in plan(study, store, dag) if p.step.ref == ref), None)
    if step is None:
        raise UserError(f"{ref}: the study as this worker has it makes no such artifact; are its files the run's?")
    return step


def make_piece(
    study: Study, store: Store, listener: Listener, ref: Ref, shard: int | None, dag: Dag = experiment
) -> None:
    """On a worker. Errors: as of `piece_step`."""
    step = piece_step(study, store, ref, dag)
    with stages_of(study, store, listener) as current:
        if shard is None:
            current.ensure(step)
        else:
            with current.at_work_on(step):
                enter_shard(step, study.profile.hardware.shard_rollouts, shard)
