"""Audit: lints over the designs of what is compared. Each lint is a named query, `lint_*.sql`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.fingerprint import restored
from storage.artifacts.kinds import Audit, Diversity, Pool, Rollouts, Splits, Training
from storage.artifacts.ref import Ref
from storage.errors import UserError
from storage.sql import query
from tasks.designs import (
    findings_of,
    from_sampling,
    from_training,
    leak_rows,
    lesson_leak_rows,
    mislabelled_rows,
    recipe_row,
    sides_of,
    trained_on,
)
from tasks.domain.gate import Gate, ScreenedArm, reasons
from tasks.domain.grading.kinds import RAISED
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import Policy
from tasks.evidence import sampled_with
from tasks.measures.groups import FORM_COLUMNS, form_of
from tasks.stage import stage, store

Row = dict[str, Any]


@stage(Audit, version=9)
def audit_designs(
    *,
    pool: Pool,
    splits: Splits,
    screenings: tuple[Rollouts, ...],
    trainings: tuple[Training, ...],
    final: tuple[Rollouts, ...],
    diversities: tuple[Diversity, ...],
    gate: Gate = Gate(),  # noqa: B008
) -> pa.Table:
    """Mismatched designs of one experiment, found before its figures are read. Schema: AUDIT. gate: the study's."""
    held = f"held-out of {splits}"
    ends = {str(ref): _last_step(ref, final) for ref in trainings}
    arms = [restored(Policy, store().manifest(ref).recipe.arguments["start"]).arm for ref in trainings]
    rows = [_sampled(ref, str(pool), "screening") for ref in screenings]
    rows += [_sampled(ref, held, "heldout") for ref in final]
    rows += [
        from_training(str(ref), store().manifest(ref).recipe, str(pool), arms.count(arm), ends[str(ref)])
        for ref, arm in zip(trainings, arms, strict=True)
    ]
    return findings_of(
        {
            "designs": rows,
            "recipes": [recipe_row(str(ref), store().manifest(ref).recipe.arguments) for ref in trainings],
            "leaks": leak_rows(store().read(pool), store().read(splits), {}, f"{pool}, {splits}")
            + _taught(trainings, pool, splits),
            "coverage": [row for ref in diversities for row in _coverage(ref, held)],
            "mislabelled": _mislabelled(screenings, trainings),
            "form": [_form(ref, str(pool)) for ref in screenings] + [_form(ref, held) for ref in final],
            "exposed": [row for ref in trainings for row in _exposed(ref, pool, splits)],
            "stops": [_steps(ref) for ref in trainings],
            "notes": [row for ref in screenings for row in _made_elsewhere(ref)]
            + _answer_kinds(screenings)
            + [row for ref in (*screenings, *final) for row in _raised(ref)]
            + _undelivered(screenings, set(arms), gate)
            + [row for ref in trainings for row in _without_update(ref)],
        }
    )


def _taught(trainings: Sequence[Ref], pool: Ref, splits: Ref) -> list[Row]:
    """Leaks between the study's held-out problems and the pools of the lessons that its trainings started from."""
    lessons, waiting = set(), list(trainings)
    while waiting:
        for init in store().manifest(waiting.pop()).recipe.inputs.get("init", []):
            inputs = store().manifest(Ref.parse(init)).recipe.inputs
            if "pool" in inputs:  # of an adapter made elsewhere nobody knows what it was taught
                lessons.add((inputs["pool"][0], inputs["splits"][0]))
                waiting.append(Ref.parse(init))
    if not lessons:
        return []
    held, _ = sides_of(store().read(pool), store().read(splits))
    read = [
        (f"{at}, {side}", store().read(Ref.parse(at)), store().read(Ref.parse(side))) for at, side in sorted(lessons)
    ]
    return [row for place, lesson, split in read for row in lesson_leak_rows(held, lesson, split, place)]


def _sampled(ref: Ref, problems: str, role: str) -> Row:
    arguments = _drawn(ref)
    table = store().read(ref, ["problem_id", "finish", "grader_version"])
    counted = query(
        """
        select count(distinct problem_id) as num_problems, avg((finish = 'length')::int) as truncated,
               string_agg(distinct grader_version, '+' order by grader_version) as grader from t
        """,
        t=table,
    ).to_pylist()[0]
    row = from_sampling(str(ref), arguments, problems, role, counted)
    return row | {"family": f"{row['family']} at step {restored(Policy, arguments['policy']).step}"}


def _made_elsewhere(screening: Ref) -> Iterator[Row]:
    """Of an arm that starts from an adapter of which nobody here knows what it was trained on."""
    policy = _policy(screening)
    if policy.adapter is not None:
        made = store().manifest(Ref.parse(policy.adapter))
        if made.recipe.stage == "import_adapter":
            said = f"{policy.arm} starts from {made.provenance.notes['adapter']}, which was trained elsewhere"
            yield {"code": "adapter_made_elsewhere", "said": said, "place": f"{screening}, {policy.adapter}"}


def _answer_kinds(screenings: Sequence[Ref]) -> list[Row]:
    """Arms whose answers are judged by different rules."""
    kinds: dict[str, list[str]] = {}
    for ref in screenings:
        policy = _policy(ref)
        kinds.setdefault(policy.scaffold.answer_kind, []).append(policy.arm)
    if len(kinds) < 2:
        return []
    said = " and ".join(f"{', '.join(sorted(set(arms)))} as {kind}" for kind, arms in sorted(kinds.items()))
    return [{"code": "answer_kinds", "said": f"answers are judged of {said}", "place": ", ".join(map(str, screenings))}]


def _raised(rollouts: Ref) -> Iterator[Row]:
    """Of answers that another package's grader could not judge."""
    table = store().read(rollouts, ["reason"])
    reasons = [reason for reason in table["reason"].to_pylist() if reason and reason.startswith(RAISED)]
    if reasons:
        arm = _policy(rollouts).arm
        said = f"{len(reasons)} of {table.num_rows} rollouts of {arm} are ungradable, the first {reasons[0]}"
        yield {"code": "grader_raised", "said": said, "place": str(rollouts)}


def _undelivered(screenings: Sequence[Ref], trained: Set[str], gate: Gate) -> list[Row]:
    """Why the screenings of the arms that were trained did not allow it, or do not let them be compared."""
    arms, places = [], {}
    for ref in screenings:
        policy = _policy(ref)
        if policy.arm in trained:
            rows = store().read(ref, FORM_COLUMNS)
            taught = policy.adapter is not None
            arms.append(ScreenedArm(arm=policy.arm, shares=form_of(rows), live=None, taught=taught))
            places[policy.arm] = str(ref)
    return [
        {"code": "gate", "said": reason.words, "place": ", ".join(places[arm] for arm in reason.arms)}
        for reason in reasons(arms, gate)
    ]


def _without_update(training: Ref) -> Iterator[Row]:
    rows = store().read(training, ["arm", "updates"])
    if rows.num_rows and not any(rows["updates"].to_pylist()):
        said = f"none of the {rows.num_rows} steps of {rows['arm'][0]} made an update"
        yield {"code": "no_update", "said": said, "place": str(training)}


def _form(ref: Ref, problems: str) -> Row:
    arm = _policy(ref).arm
    return {"arm": arm, "problems": problems, "place": str(ref)} | form_of(store().read(ref, FORM_COLUMNS))


def _steps(training: Ref) -> Row:
    """Steps that a training was asked for, and the last one of which it has a row."""
    learner = restored(LearnerConfig, store().manifest(training).recipe.arguments["learner"])
    executed = max(store().read(training, ["step"])["step"].to_pylist(), default=0)
    asked = {"run": str(training), "requested": learner.steps, "executed": executed}
    return asked | {"reason": "by its own rows", "place": str(training)}


def _exposed(training: Ref, pool: Ref, splits: Ref) -> list[Row]:
    """Problems and groups of a training by source; none in a copy without its files."""
    file = store().files(training) / "exposure.parquet"
    if not file.exists():
        return []
    problems = trained_on(training, store().read(pool, ["problem_id", "source"]), store().read(splits))
    return query(
        """
        select arm, source, problems, sum(problems) over () as all_problems, groups, sum(groups) over () as all_groups,
               $place as place
        from (select arm, source, count(*) as problems from problems group by all)
        join (select source, count(*) as groups from exposure group by all) using (source)
        """,
        {"place": str(training)},
        problems=problems,
        exposure=pq.read_table(file, columns=["source"]),
    ).to_pylist()


def _last_step(training: Ref, final: Sequence[Ref]) -> int | None:
    policies = [_policy(ref) for ref in final]
    steps = [policy.step for policy in policies if policy.adapter == str(training)]
    return max(steps, default=None)


def _policy(rollouts: Ref) -> Policy:
    return restored(Policy, _drawn(rollouts)["policy"])


def _drawn(rollouts: Ref) -> dict[str, Any]:
    """The arguments that the rollouts were sampled with. Errors: UserError for imported ones."""
    if (arguments := sampled_with(rollouts)) is None:
        raise UserError(f"{rollouts} was imported: nothing tells how it was sampled")
    return dict(arguments)


def _coverage(diversity: Ref, problems: str) -> list[Row]:
    found = query(
        """
        select arm, "window", avg(coverage) as coverage from t where coverage is not null and "window" = 'whole'
        group by all
        """,
        t=store().read(diversity),
    )
    about = {"problems": problems, "basis": "measured", "place": str(diversity)}
    return [row | about for row in found.to_pylist()]


def _mislabelled(screenings: Sequence[Ref], trainings: Sequence[Ref]) -> list[Row]:
    """Dead groups of each screening that the training's group size is expected to make live."""
    sizes = {}
    for ref in trainings:
        given = store().manifest(ref).recipe.arguments
        sizes[restored(Policy, given["start"]).arm] = restored(LearnerConfig, given["learner"]).group_size
    rows = []
    for ref in screenings:
        counts = query(
            "select arm, count(*) as n, count(*) filter (where correct) as c from t group by arm, problem_id",
            t=store().read(ref, ["arm", "problem_id", "correct"]),
        ).to_pylist()
        if counts and counts[0]["arm"] in sizes:
            arm = counts[0]["arm"]
            rows += mislabelled_rows(arm, [(r["n"], r["c"]) for r in counts], sizes[arm])
    return rows
