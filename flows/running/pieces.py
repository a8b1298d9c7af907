"""Pieces of a study, each made by one worker: a training, embeddings, a search, a sampling or a shard of one.

Workers are processes (`processes.py`) or a Prefect pool (`on_prefect.py`). Workers make costly artifacts, and the
dispatcher makes the cheap ones in between. Shards enter no fingerprint: the rollouts of a shard go to the ledger, and
the artifact is made when all shards are there. Shards consist of whole batches, so that they do not change the batches.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from flows.experiment import experiment
from flows.study.resolve import Study
from storage.artifacts.fingerprint import fingerprint
from storage.artifacts.ref import Ref
from storage.errors import ArmsFailed, Parked, UserError
from tasks.domain.policies import Policy
from tasks.engines.hardware import Hardware
from tasks.metering import OCCUPYING
from tasks.rollouts import account_of
from tasks.sampling import SHARDED, enter_shard, open_shards
from tasks.stage import Session, Step

Dag = Callable[[Study], object]
#: Kinds of artifacts that workers make. Calibrations are among them, because they need the encoder.
COSTLY = OCCUPYING | {"calibrations"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of work for one worker. ref: the artifact that it belongs to. shard: number of the shard of a sampling;
    None for the whole artifact. arm: the arm whose policy is sampled or trained. turn: number of trainings of this arm
    before it in the study. Pieces start in the order of their turns, so that an interrupted study has the same seeds of
    all arms."""

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
        """Return the pieces that ended since the last call, each with its error or None. Wait for the first one."""
        ...


def dispatch(wanted: Callable[[set[str]], Sequence[Piece]], workers: Workers, tell: Callable[[str], None]) -> None:
    """Have every piece made, and return when none is left. Raise Parked if a piece reached the budget limit, after live
    pieces have ended; raise ArmsFailed if a piece failed, after everything else is made. wanted: gets the keys of
    finished pieces, and returns those that can be made now (live ones may be among them)."""
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
    current: Session, study: Study, done: set[str], dag: Dag = experiment, *, in_shards: bool = True
) -> list[Piece]:
    """Walk the DAG in an open session, and make its cheap stages, also artifacts whose shards are complete. Return the
    pieces that can be made now. done: keys of finished pieces; those that the ledger already has are added to it."""
    store, costly, found = current.store, dict[Ref, Step](), dict[Ref, list[Piece]]()

    def others_make(step: Step) -> bool:
        if step.ref.kind not in COSTLY or step.recipe.stage == "regrade_rollouts":  # because regrading samples nothing
            return False
        if step.ref not in costly and all(map(store.fresh, step.awaited)):
            same = (one for one in current.steps if one.ref.kind == "training" and _arm_of(one) == _arm_of(step))
            turn = len({one.ref for one in same} - {step.ref})
            found[step.ref] = [*_pieces_of(step, turn, study.profile.hardware, done, in_shards)]
        costly[step.ref] = step
        return bool(found.get(step.ref, True))

    current.steps.clear()
    current.elsewhere = others_make
    dag(study)
    steps = [step for ref, step in costly.items() if ref not in current.done]
    samplings = {_sampling_of(step, "policy", "sampling") for step in steps if step.recipe.stage == SHARDED}
    pieces, at_work = list[Piece](), dict[str, Ref]()
    for step in steps:
        if "evaluation" in step.arguments and _sampling_of(step, "start", "evaluation") in samplings:
            continue
        # two samplings of one policy share rollouts, and would both pay for them at the same time
        policy = step.arguments.get("policy")
        if step.ref in found and (
            policy is None or at_work.setdefault(fingerprint(policy.identity()), step.ref) == step.ref
        ):
            pieces += found[step.ref]
    return sorted(pieces, key=attrgetter("turn"))


def _sampling_of(step: Step, policy: str, sampling: str) -> tuple[object, ...]:
    """Return the policy and problems that a step samples. A training evaluates its start in the engine call of its
    first step. If another step sampled that policy at the same time, both would pay for the same rollouts."""
    given = step.arguments
    return account_of(given[policy], given[sampling]), given["pool"], given["splits"]


def _arm_of(step: Step) -> str:
    return next((value.arm for value in step.arguments.values() if isinstance(value, Policy)), "")


def _pieces_of(step: Step, turn: int, hardware: Hardware, done: set[str], in_shards: bool) -> Iterator[Piece]:
    arm = _arm_of(step)
    if step.recipe.stage != SHARDED or not in_shards:
        if str(step.ref) not in done:
            yield Piece(step.ref, step.title, arm=arm, turn=turn)
        return
    known = {int(shard) for ref, _, shard in (key.rpartition(":") for key in done) if ref == str(step.ref)}
    for shard in open_shards(step, hardware.shard_rollouts, known):
        yield Piece(step.ref, step.title, shard, arm, turn)
    done |= {f"{step.ref}:{shard}" for shard in known}


def make_piece(current: Session, step: Step, shard: int | None, hardware: Hardware) -> None:
    """Make a step, or a shard of it, in a session that is open."""
    if shard is None:
        current.carry_out(step)
    else:
        with current.at_work_on(step):
            enter_shard(step, hardware.shard_rollouts, shard)
