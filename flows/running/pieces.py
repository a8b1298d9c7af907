"""Pieces: what of a study one worker makes apart: a training, embeddings, a search, or a shard of what is sampled.

A shard is how a sampling is carried out and no part of any name: its rollouts go to the ledger, and when all shards are
there whoever wants the artifact gathers it. Shards fill whole batches, so they are batched as the whole is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from flows.experiment import experiment
from flows.running.plan import plan
from flows.running.sessions import Listener, stages_of
from flows.study.resolve import Study
from storage.artifacts.fingerprint import fingerprint
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.metering import OCCUPYING
from tasks.rollouts import account_of
from tasks.sampling import DRAWN, enter_shard, open_shards
from tasks.stage import Step

Dag = Callable[[Study], object]
#: What a worker makes; calibrations need the encoder, as embeddings do.
COSTLY = OCCUPYING | {"calibrations"}


@dataclass(frozen=True, slots=True)
class Piece:
    """ref: of the artifact that it is for. shard: its place among those of a sampling; null for the whole artifact."""

    ref: Ref
    title: str
    shard: int | None = None

    @property
    def key(self) -> str:
        return str(self.ref) if self.shard is None else f"{self.ref}:{self.shard}"

    @property
    def name(self) -> str:
        return self.title if self.shard is None else f"{self.title}, shard {self.shard}"


def next_pieces(study: Study, store: Store, listener: Listener, done: set[str], dag: Dag = experiment) -> list[Piece]:
    """What can be made now and is not done, after everything that costs little was made here, such as an artifact whose
    shards are all done. done: keys of pieces; those that are found in the ledger are added."""
    _, others = _open(study, store, done, dag)
    with stages_of(study, store, listener, elsewhere=others):
        dag(study)
    return _open(study, store, done, dag)[0]


def _open(study: Study, store: Store, done: set[str], dag: Dag) -> tuple[list[Piece], frozenset[Ref]]:
    """Pieces that can be made, and what is not to be made here."""
    pieces: list[Piece] = []
    others = set[Ref]()
    at_work: dict[str, Ref] = {}
    planned = [p.step for p in plan(study, store, dag) if p.made_here and p.step.ref.kind in COSTLY]
    drawn = {_drawn(step, "policy", "sampling") for step in planned if step.recipe.stage in DRAWN}
    with stages_of(study, store):
        for step in planned:
            if step.recipe.stage == "regrade_rollouts":  # it samples nothing
                continue
            can = all(map(store.fresh, step.awaited)) and not (
                "evaluation" in step.arguments and _drawn(step, "start", "evaluation") in drawn
            )
            left = list(_pieces_of(step, study, done)) if can else []
            if left or not can:
                others.add(step.ref)
            # two samplings of one policy share rollouts: at once, both would pay for them
            policy = step.arguments.get("policy")
            if left and policy is not None and at_work.setdefault(fingerprint(policy.identity()), step.ref) != step.ref:
                continue
            pieces += left
    return pieces, frozenset(others)


def _drawn(step: Step, policy: str, sampling: str) -> tuple[object, ...]:
    """Whose rollouts of which problems a step asks for. A training evaluates its start, in one engine call with its
    first step: at once with a sampling of the same, both would pay for them."""
    given = step.arguments
    return account_of(given[policy], given[sampling]), given["pool"], given["splits"]


def _pieces_of(step: Step, study: Study, done: set[str]) -> Iterator[Piece]:
    whole = Piece(step.ref, step.title)
    if step.recipe.stage not in DRAWN:
        yield from [whole] if whole.key not in done else []
        return
    known = {int(shard) for ref, _, shard in (key.rpartition(":") for key in done) if ref == str(step.ref)}
    for shard in open_shards(step, study.profile.hardware.shard_rollouts, known):
        yield Piece(step.ref, step.title, shard)
    done |= {f"{step.ref}:{shard}" for shard in known}


def make_piece(
    study: Study, store: Store, listener: Listener, ref: Ref, shard: int | None, dag: Dag = experiment
) -> None:
    """On a worker. Errors: UserError for what this worker's study does not make."""
    step = next((p.step for p in plan(study, store, dag) if p.step.ref == ref), None)
    if step is None:
        raise UserError(f"{ref}: the study as this worker has it makes no such artifact; are its files the run's?")
    with stages_of(study, store, listener) as current:
        if shard is None:
            current.ensure(step)
        else:
            with current.at_work_on(step):
                enter_shard(step, study.profile.hardware.shard_rollouts, shard)
