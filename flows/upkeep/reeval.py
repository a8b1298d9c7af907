"""Every night: are the figures of kept adapters still what was measured?

Rollouts of the same policy, sampling and engine are in the ledger, so a night on which nothing changed samples
nothing. A new engine version draws anew, with a seed of its own; a new grader grades the stored rollouts again.
"""

from __future__ import annotations

import re
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

PIN = re.compile(r"(training-[0-9a-f]{16})@([1-9][0-9]{0,5})")


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


@dataclass(frozen=True, slots=True)
class Wanted:
    """A study whose adapters are looked at: the newest of every arm and seed, or only pinned ones."""

    study: Study
    newest: bool = True


def wanted_studies(store: Store, named: Sequence[Study | Checked], pins: Sequence[str]) -> Iterator[Wanted | Checked]:
    """The named studies; without any, every finished run's, for the pins alone if there are some.

    What cannot be resolved on this machine is said as an adapter that was not checked.
    """
    for one in named:
        yield one if isinstance(one, Checked) else Wanted(one)
    if named and not pins:
        return
    for path in record_paths(store.root):
        try:
            run = read_record(path)
            if run.state == "finished":
                yield Wanted(Request.from_json(run.request).study(store), newest=not pins)
        except UserError as error:
            yield Checked(f"adapters of {path.stem}", "unchecked", str(error))


def pinned_steps(pins: Sequence[str]) -> dict[tuple[str, int], str]:
    """(training, step) of every pin → the pin. Errors: UserError for one that is none."""
    found = {}
    for pin in pins:
        if (match := PIN.fullmatch(pin)) is None:
            raise UserError(f"pinned '{pin[:60]}': write training-<16 hex digits>@<step>")
        found[(match[1], int(match[2]))] = pin
    return found


def kept_adapters(wanted: Wanted, store: Store, pins: dict[tuple[str, int], str]) -> Iterator[Kept | Checked]:
    """The wanted adapters of a study with their references, and those whose evaluation is not made yet."""
    found: dict[tuple[str, str, int], tuple[Kept, Planned]] = {}
    for planned in plan(wanted.study, store):
        step, given = planned.step, planned.step.arguments
        if step.recipe.stage == sample_rollouts.name and given["split"] == "heldout" and given["training"] is not None:
            policy, training, reference = given["policy"], given["training"], Rollouts.parse(str(step.ref))
            kept = Kept(policy, training, reference, given["pool"], given["splits"], given["sampling"])
            found[(policy.arm, str(training), policy.step)] = kept, planned
    newest = {(arm, ref): max(s for a, r, s in found if (a, r) == (arm, ref)) for arm, ref, _ in found}
    for (arm, ref, step), (kept, planned) in found.items():
        if (wanted.newest and newest[(arm, ref)] == step) or (ref, step) in pins:
            yield kept if planned.reused else Checked(kept.name, "unchecked", "its evaluation is not made yet")


def reevaluate(
    store: Store,
    named: Sequence[Study | Checked],
    pins: Sequence[str],
    charged: Callable[[Study], AbstractContextManager[Listener]],
) -> Iterator[Checked]:
    """Every wanted adapter once, as it is found tonight. Notes are kept under the root until a figure is back.

    named: those that cannot be resolved as what is said of them. charged: the listener of what is made for a study.
    Errors: UserError for a pin that is none; Parked at a wall, which holds for the adapters after it too.
    """
    pending, seen = pinned_steps(pins), set()
    for wanted in wanted_studies(store, named, pins):
        if isinstance(wanted, Checked):
            yield wanted
            continue
        if not wanted.newest and not pending:
            break
        with charged(wanted.study) as listener, stages_of(wanted.study, store, listener):
            for kept in _kept_or_why(wanted, store, pins):
                if isinstance(kept, Kept):
                    pending.pop((str(kept.training), kept.policy.step), None)
                name = kept.name if isinstance(kept, Kept) else kept.adapter
                if name not in seen:
                    seen.add(name)
                    yield kept if isinstance(kept, Checked) else _checked(wanted.study, store, kept)
    for pin in pending.values():
        yield Checked(pin, "unchecked", "no study that was asked for and no finished run of this root has evaluated it")


def _kept_or_why(wanted: Wanted, store: Store, pins: Sequence[str]) -> list[Kept | Checked]:
    try:
        return list(kept_adapters(wanted, store, pinned_steps(pins)))
    except UserError as error:  # of this study: the others are looked at all the same
        return [Checked(f"adapters of {wanted.study.profile.called}", "unchecked", str(error))]


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
