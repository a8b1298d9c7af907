"""Every night: are the figures of kept adapters still what was measured?

Rollouts of the same policy, sampling and engine are in the ledger, so a night on which nothing changed samples
nothing. A new engine version draws anew, with a seed of its own; a new grader grades the stored rollouts again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Literal

from flows.running.plan import Planned, plan
from flows.running.sessions import Listener, stages_of
from flows.study.request import Request
from flows.study.resolve import Study
from storage.artifacts.fingerprint import derived_seed
from storage.artifacts.kinds import Pool, Rollouts, Splits, Training
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import Parked, UserError
from storage.ledger import Ledger
from storage.records.drift import DriftNote, close_drift, note_drift
from storage.records.runs import now, read_record, record_paths
from storage.sql import query
from tasks.domain.policies import Policy, Sampling
from tasks.domain.statistics.shares import Interval, proportions
from tasks.engines.hardware import engine_now
from tasks.regrading import regrade
from tasks.rollouts import account_of
from tasks.sampling import sample_rollouts


@dataclass(frozen=True, slots=True)
class Kept:
    """One adapter and the rollouts of its first evaluation, which are the reference."""

    policy: Policy
    training: Training
    reference: Rollouts
    pool: Pool
    splits: Splits
    sampling: Sampling

    @property
    def name(self) -> str:
        return f"{self.policy.arm} {self.training}@{self.policy.step}"


@dataclass(frozen=True, slots=True)
class Checked:
    """What a night found of one adapter. said: compared with what, or why not. tonight: null if not."""

    adapter: str
    state: Literal["holds", "drifted", "unchecked"]
    said: str
    reference: Interval | None = None
    tonight: float | None = None

    def row(self) -> dict[str, str]:
        r, figure = self.reference, self.tonight
        return {
            "adapter": self.adapter,
            "accuracy when measured": f"{r.estimate:.3f} [{r.low:.3f}, {r.high:.3f}]" if r else "",
            "tonight": "" if figure is None else f"{figure:.3f}",
            "found": self.state,
            "why": self.said,
        }


def kept_adapters(study: Study, store: Store) -> Iterator[Kept | Checked]:
    """The newest adapter of every arm and seed with its reference, and those whose evaluation is not made yet."""
    found: dict[tuple[str, str], tuple[Kept, Planned]] = {}
    for planned in plan(study, store):
        step, given = planned.step, planned.step.arguments
        if step.recipe.stage == sample_rollouts.name and given["split"] == "heldout" and given["training"] is not None:
            policy, training, reference = given["policy"], given["training"], Rollouts.parse(str(step.ref))
            kept = Kept(policy, training, reference, given["pool"], given["splits"], given["sampling"])
            earlier = found.get((policy.arm, str(training)))
            if earlier is None or policy.step >= earlier[0].policy.step:
                found[policy.arm, str(training)] = kept, planned
    for kept, planned in found.values():
        yield kept if planned.reused else Checked(kept.name, "unchecked", "its evaluation is not made yet")


def reevaluate(
    store: Store, named: Sequence[Study | Checked], charged: Callable[[Study], AbstractContextManager[Listener]]
) -> Iterator[Checked]:
    """Every adapter of the named studies once, as it is found tonight; without any name, of every finished run. Notes
    are kept under the root until a figure is back.

    named: those that cannot be resolved as what is said of them. charged: the listener of what is made for a study.
    Errors: Parked at a budget limit, which holds for the adapters after it too.
    """
    seen = set[str]()
    for study in named or _finished(store):
        if isinstance(study, Checked):
            yield study
            continue
        with charged(study) as listener, stages_of(study, store, listener):
            for kept in _kept_or_why(study, store):
                name = kept.name if isinstance(kept, Kept) else kept.adapter
                if name not in seen:
                    seen.add(name)
                    yield kept if isinstance(kept, Checked) else _checked(study, store, kept)


def _finished(store: Store) -> Iterator[Study | Checked]:
    """The studies of finished runs; one that cannot be resolved on this machine is an adapter that was not checked."""
    for path in record_paths(store.root):
        try:
            run = read_record(path)
            if run.state == "finished":
                yield Request.from_json(run.request).study(store)
        except UserError as error:
            yield Checked(f"adapters of {path.stem}", "unchecked", str(error))


def _kept_or_why(study: Study, store: Store) -> list[Kept | Checked]:
    try:
        return list(kept_adapters(study, store))
    except UserError as error:  # of this study: the others are looked at all the same
        return [Checked(f"adapters of {study.profile.called}", "unchecked", str(error))]


def _checked(study: Study, store: Store, kept: Kept) -> Checked:
    try:
        return _compared(study, store, kept)
    except Parked:
        raise
    except UserError as error:  # of this adapter: the others are looked at all the same
        return Checked(kept.name, "unchecked", str(error))


def _compared(study: Study, store: Store, kept: Kept) -> Checked:
    rollouts = kept.reference
    graded = ", ".join(store.read(rollouts, ["grader_version"])["grader_version"].unique().to_pylist())
    engine, here = _engine_of(store, kept), engine_now(study.profile.hardware.engine)
    reference, version = _accuracy(store, rollouts), study.grader.version
    if graded != version:
        tonight = regrade(rollouts=rollouts, pool=kept.pool, grader=study.grader)
        why = f"grader {graded} → {version}"
    elif not engine:
        return Checked(kept.name, "unchecked", "the ledger does not know any more which engine sampled it", reference)
    elif engine != here:
        why, tonight = f"engine {engine} → {here}", _drawn_anew(study, kept)
    else:
        tonight, why = rollouts, f"nothing changed: engine {engine}, grader {graded}"
    value = _accuracy(store, tonight)
    inside = reference.low <= value.estimate <= reference.high
    if inside and not (graded != version and _graded_otherwise(store, rollouts, tonight)):
        close_drift(store.root, kept.name, "accuracy")
        return Checked(kept.name, "holds", why, reference, value.estimate)
    note_drift(
        store.root,
        DriftNote(
            policy=kept.name,
            metric="accuracy",
            reference=reference.estimate,
            low=reference.low,
            high=reference.high,
            value=value.estimate,
            rollouts=store.manifest(tonight).rows,
            why=why,
            since=now(),
            last=now(),
        ),
    )
    return Checked(kept.name, "drifted", why, reference, value.estimate)


def _drawn_anew(study: Study, kept: Kept) -> Rollouts:
    """The same evaluation under another seed, which is a function of the engine: sampled once for each engine."""
    final, p = study.profile.final, study.profile
    seed = derived_seed("re-evaluation", engine_now(p.hardware.engine), final.sampling.seed)
    return sample_rollouts.titled(f"re-evaluate {kept.policy.arm} at step {kept.policy.step}")(
        pool=kept.pool,
        splits=kept.splits,
        policy=kept.policy,
        sampling=replace(final.sampling, seed=seed, kv_cache=kept.sampling.kv_cache),
        group_size=final.group_size,
        split="heldout",
        training=kept.training,
        lora_rank=p.training.lora_rank,
    )


def _accuracy(store: Store, rollouts: Ref) -> Interval:
    """Share of correct rollouts with its interval over problems; one problem tells of no other."""
    per_problem = query(
        "select avg(correct::int) as p from rows group by problem_id order by problem_id",
        rows=store.read(rollouts, ["problem_id", "correct"]),
    )
    shares_P = per_problem["p"].to_numpy()
    if not len(shares_P):
        raise UserError(f"{rollouts} has no rollouts: there is nothing to compare with")
    low, high = proportions(shares_P[None, :, None], trained=False)
    return Interval(float(shares_P.mean()), *((float(low[0]), float(high[0])) if len(shares_P) > 1 else (0.0, 1.0)))


def _engine_of(store: Store, kept: Kept) -> str:
    """The engine that sampled the reference, as the ledger has it; empty if the ledger is gone."""
    account = account_of(kept.policy, kept.sampling)
    rows = Ledger(store.root).rows(account, ["engine"])
    return "" if rows is None else ", ".join(sorted(rows["engine"].unique().to_pylist()))


def _graded_otherwise(store: Store, before: Ref, after: Ref) -> int:
    """Verdicts that differ between two gradings of the same rollouts."""
    columns = ["problem_id", "rollout", "correct"]
    return query(
        "select count(*) n from b join a using (problem_id, rollout) where a.correct <> b.correct",
        b=store.read(before, columns),
        a=store.read(after, columns),
    )["n"][0].as_py()
