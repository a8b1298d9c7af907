"""Pieces of a study, each made by one worker: a training, embeddings, a search, a sampling or a shard of one.

Workers are processes (`processes.py`) or a Prefect pool (`on_prefect.py`). Both backends fill the store, and the
dispatcher makes the cheap stages in between. Sharding does not enter any fingerprint: a shard's rollouts go to the
ledger, and the artifact is collected once all shards are there. Shards consist of whole batches, so that batching is
the same as without shards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
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
from tasks.stage import Session, Step

Dag = Callable[[Study], object]
#: Kinds of artifacts that workers make; calibrations need the encoder, like embeddings.
COSTLY = OCCUPYING | {"calibrations"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of work for one worker. ref: the artifact that it belongs to. shard: its position among the shards of a
    sampling; None for the whole artifact. arm: whose policy is sampled or trained. turn: number of trainings of this
    arm that come before it in the study. Pieces are begun in the order of their turns, so that an interrupted study has
    the same seeds of all arms."""

    ref: Ref
    title: str
    shard: int | None = None
    arm: str = ""
    turn: int = 0

    @property
    def key(self) -> str:
        return str(self.ref) if self.shard is None else f"{self.ref}:{self.shard}"

    @property
    def name(self) -> str:
        return self.title if self.shard is None else f"{self.title}, shard {self.shard}"


class Workers(Protocol):
    """Makes pieces."""

    def begin(self, piece: Piece) -> None:
        """Start the piece as soon as a worker is free."""
        ...

    def ended(self) -> Iterable[tuple[Piece, UserError | None]]:
        """Return the pieces that ended since the last call, each with its error if any; wait for the first."""
        ...


def dispatch(wanted: Callable[[set[str]], Sequence[Piece]], workers: Workers, tell: Callable[[str], None]) -> None:
    """Have every piece made; return when none is left. wanted: given the keys of finished pieces, returns those that
    can be made now, possibly including pieces in progress. Raise Parked if a piece reached its budget, after those in
    progress have ended; ArmsFailed if one failed, after everything else is made."""
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
            if isinstance(error, Parked):
                limits.append(error)
            else:
                tell(f"{piece.name} failed: {error}")
    if limits:
        raise limits[0]
    if failed:
        raise ArmsFailed("; ".join(f"{name} failed: {error}" for name, error in failed.values()))


def next_pieces(
    study: Study, store: Store, listener: Listener, done: set[str], dag: Dag = experiment, *, in_shards: bool = True
) -> list[Piece]:
    """Pieces that can be made now, after making all cheap stages here, such as collecting an artifact whose shards are
    done. done: keys of finished pieces; those found in the ledger are added."""
    _, others = _open(study, store, done, dag, in_shards)
    with stages_of(study, store, listener, elsewhere=others):
        dag(study)
    return _open(study, store, done, dag, in_shards)[0]


def _open(study: Study, store: Store, done: set[str], dag: Dag, in_shards: bool) -> tuple[list[Piece], frozenset[Ref]]:
    """Return the pieces that can be made, and the refs that other machines must make."""
    pieces: list[Piece] = []
    others = set[Ref]()
    at_work: dict[str, Ref] = {}
    everything = plan(study, store, dag)
    turns = _turns(p.step for p in everything)
    planned = [p.step for p in everything if p.made_here and p.step.ref.kind in COSTLY]
    samplings = {_sampling_of(step, "policy", "sampling") for step in planned if step.recipe.stage == SHARDED}
    with stages_of(study, store):
        for step in planned:
            if step.recipe.stage == "regrade_rollouts":  # it samples nothing
                continue
            can = all(map(store.fresh, step.awaited)) and not (
                "evaluation" in step.arguments and _sampling_of(step, "start", "evaluation") in samplings
            )
            left = list(_pieces_of(step, turns[step.ref], study, done, in_shards)) if can else []
            if left or not can:
                others.add(step.ref)
            # two samplings of one policy share rollouts: at once, both would pay for them
            policy = step.arguments.get("policy")
            if left and policy is not None and at_work.setdefault(fingerprint(policy.identity()), step.ref) != step.ref:
                continue
            pieces += left
    return sorted(pieces, key=attrgetter("turn")), frozenset(others)


def _sampling_of(step: Step, policy: str, sampling: str) -> tuple[object, ...]:
    """The policy and problems that a step samples. A training evaluates its start in the same engine call as its first
    step, so sampling both at once would pay twice."""
    given = step.arguments
    return account_of(given[policy], given[sampling]), given["pool"], given["splits"]


def _turns(steps: Iterable[Step]) -> dict[Ref, int]:
    """Return the number of trainings of the same arm that precede each step."""
    turns, trained = dict[Ref, int](), Counter[str]()
    for step in steps:
        arm = _arm_of(step)
        turns[step.ref] = trained[arm]
        trained[arm] += step.ref.kind == "training"
    return turns


def _arm_of(step: Step) -> str:
    return next((value.arm for value in step.arguments.values() if isinstance(value, Policy)), "")


def _pieces_of(step: Step, turn: int, study: Study, done: set[str], in_shards: bool) -> Iterator[Piece]:
    arm = _arm_of(step)
    if step.recipe.stage != SHARDED or not in_shards:
        if str(step.ref) not in done:
            yield Piece(step.ref, step.title, arm=arm, turn=turn)
        return
    known = {int(shard) for ref, _, shard in (key.rpartition(":") for key in done) if ref == str(step.ref)}
    for shard in open_shards(step, study.profile.hardware.shard_rollouts, known):
        yield Piece(step.ref, step.title, shard, arm, turn)
    done |= {f"{step.ref}:{shard}" for shard in known}


def make_piece(
    study: Study, store: Store, listener: Listener, ref: Ref, shard: int | None, dag: Dag = experiment
) -> None:
    """On a worker. Errors as for `piece_in`."""
    with stages_of(study, store, listener) as current:
        piece_in(current, study, store, ref, shard, dag)


def piece_in(current: Session, study: Study, store: Store, ref: Ref, shard: int | None, dag: Dag = experiment) -> None:
    """Make a piece of work in the open session. Raise UserError for an artifact that this worker's study does not
    make."""
    step = next((p.step for p in plan(study, store, dag) if p.step.ref == ref), None)
    if step is None:
        raise UserError(f"{ref}: this worker's study does not make this artifact; give the worker the run's files")
    if shard is None:
        current.ensure(step)
    else:
        with current.at_work_on(step):
            enter_shard(step, study.profile.hardware.shard_rollouts, shard)
