"""Every night: are the figures of kept adapters still what was measured?

Rollouts of the same policy, sampling and engine are in the ledger, so a night on which nothing changed samples
nothing. A new engine version draws anew, with a seed of its own; a new grader grades the stored rollouts again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from flows.running.plan import plan
from flows.running.sessions import stages_of
from flows.study.resolve import Study
from storage.artifacts.fingerprint import derived_seed
from storage.artifacts.kinds import Pool, Rollouts, Splits, Training
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.ledger import Ledger
from storage.records.drift import DriftNote, close_drift, note_drift
from storage.records.runs import now
from storage.sql import query
from tasks.domain.policies import Policy, Sampling
from tasks.domain.statistics.intervals import Interval
from tasks.domain.statistics.shares import proportions
from tasks.engines.hardware import engine_now
from tasks.regrading import regrade
from tasks.rollouts import account_of
from tasks.sampling import sample_rollouts
from tasks.stage import Progress

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


def kept_adapters(study: Study, store: Store, pinned: tuple[str, ...]) -> Iterator[Kept]:
    """The study's adapters at their last evaluated step, and the pinned ones.

    Errors: UserError for a pin that is none, or that this study never evaluated.
    """
    wanted: dict[tuple[str, int], str] = {}
    for pin in pinned:
        if (match := PIN.fullmatch(pin)) is None:
            raise UserError(f"pinned '{pin[:60]}': write training-<16 hex digits>@<step>")
        wanted[(match[1], int(match[2]))] = pin
    found: dict[tuple[str, str, int], Kept] = {}
    for planned in plan(study, store):
        step, given = planned.step, planned.step.arguments
        sampled = step.recipe.stage == sample_rollouts.name and given["split"] == "heldout"
        if sampled and planned.reused and given["training"] is not None:
            policy, training, reference = given["policy"], given["training"], Rollouts.parse(str(step.ref))
            kept = Kept(policy, training, reference, given["pool"], given["splits"], given["sampling"])
            found[(policy.arm, str(training), policy.step)] = kept
    newest = {(arm, ref): max(s for a, r, s in found if (a, r) == (arm, ref)) for arm, ref, _ in found}
    for (arm, ref, step), kept in found.items():
        if newest[(arm, ref)] == step or (ref, step) in wanted:
            wanted.pop((ref, step), None)
            yield kept
    if wanted:
        raise UserError(f"pinned {next(iter(wanted.values()))}: this study has not evaluated it; run the study first")


def reevaluate(
    study: Study, store: Store, pinned: tuple[str, ...], listener: Callable[[Progress], None]
) -> list[DriftNote]:
    """The figures that left their interval tonight. Their notes are kept under the root until they are back."""
    notes = []
    with stages_of(study, store, listener):
        for kept in kept_adapters(study, store, pinned):
            notes += _compared(study, store, kept)
    return notes


def _compared(study: Study, store: Store, kept: Kept) -> Iterator[DriftNote]:
    name = f"{kept.policy.arm} {kept.training}@{kept.policy.step}"
    rollouts = kept.reference
    graded = ", ".join(store.read(rollouts, ["grader_version"])["grader_version"].unique().to_pylist())
    engine, here = _engine_of(store, kept), engine_now(study.profile.hardware.engine)
    reference, (why, tonight) = _accuracy(store, rollouts), ("", kept.reference)
    version = study.grader.version
    if graded != version:
        tonight = regrade(rollouts=rollouts, pool=kept.pool, grader=study.grader)
        why = f"grader {graded} → {version}"
    elif engine and engine != here:
        why, tonight = f"engine {engine} → {here}", _drawn_anew(study, kept)
    value = _accuracy(store, tonight)
    inside = reference.low <= value.estimate <= reference.high
    if inside and not (graded != version and graded_otherwise(store, rollouts, tonight)):
        close_drift(store.root, name, "accuracy")
        return
    yield note_drift(
        store.root,
        DriftNote(
            policy=name,
            metric="accuracy",
            reference=reference.estimate,
            low=reference.low,
            high=reference.high,
            value=value.estimate,
            rollouts=store.manifest(tonight).rows,
            why=why or "measured again",
            since=now(),
            last=now(),
        ),
    )


def _drawn_anew(study: Study, kept: Kept) -> Rollouts:
    """The same evaluation under another seed, which is a function of the engine: sampled once for each engine."""
    final, p = study.profile.final, study.profile
    seed = derived_seed("re-evaluation", engine_now(p.hardware.engine), final.sampling.seed)
    return sample_rollouts.titled(f"re-evaluate {kept.policy.arm} at step {kept.policy.step}")(
        pool=kept.pool,
        splits=kept.splits,
        policy=kept.policy,
        sampling=replace(final.sampling, seed=seed),
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


def graded_otherwise(store: Store, before: Ref, after: Ref) -> int:
    """Verdicts that differ between two gradings of the same rollouts."""
    columns = ["problem_id", "rollout", "correct"]
    return query(
        "select count(*) n from b join a using (problem_id, rollout) where a.correct <> b.correct",
        b=store.read(before, columns),
        a=store.read(after, columns),
    )["n"][0].as_py()


def _engine_of(store: Store, kept: Kept) -> str:
    """The engine that sampled the reference, as the ledger has it; empty if the ledger is gone."""
    account = account_of(kept.policy, kept.sampling)
    rows = Ledger(store.root).rows(account, ["engine"])
    return "" if rows is None else ", ".join(sorted(rows["engine"].unique().to_pylist()))


def regraded(study: Study, store: Store, listener: Callable[[Progress], None]) -> dict[str, int]:
    """Rollouts of the study that exist, judged by the study's grader: ref → verdicts that changed."""
    changed = {}
    with stages_of(study, store, listener):
        for planned in plan(study, store):
            ref, given = planned.step.ref, planned.step.arguments
            if planned.reused and isinstance(ref, Rollouts) and "policy" in given:  # sampled ones
                now = regrade(rollouts=ref, pool=given["pool"], grader=study.grader)
                changed[str(ref)] = graded_otherwise(store, ref, now)
    return changed
