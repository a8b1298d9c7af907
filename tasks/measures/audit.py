"""The audit: checks of how the compared runs were designed. Each check is a named query, `lint_*.sql`."""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.fingerprint import restored
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import Audit, Diversity, Pool, Rollouts, Splits, Training
from storage.errors import UserError
from storage.sql import query
from tasks import designs
from tasks.domain.gate import Gate, ScreenedArm, reasons
from tasks.domain.grading.kinds import RAISED
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.rewards import OF_FORM
from tasks.domain.policies import Policy, Sampling
from tasks.evidence import sampled_with
from tasks.measures.groups import FORM_COLUMNS, Row, form_of
from tasks.stage import stage, store


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
    """Return the findings of all checks on the designs of a study. Schema: AUDIT. gate: the study's limits on form."""
    held = f"held-out of {splits}"
    sampled = [*((ref, str(pool), "screening") for ref in screenings), *((ref, held, "heldout") for ref in final)]
    recipes = {ref: store().manifest(ref).recipe for ref in trainings}
    starts = {ref: restored(Policy, recipe.arguments["start"]).arm for ref, recipe in recipes.items()}
    sizes = {
        starts[ref]: restored(LearnerConfig, recipe.arguments["learner"]).group_size for ref, recipe in recipes.items()
    }
    made = [_sampled(*one) for one in sampled]
    for ref, recipe in recipes.items():
        seeds = list(starts.values()).count(starts[ref])
        last = max((one.step for one in map(_policy, final) if one.adapter == str(ref)), default=None)
        made.append(designs.from_training(str(ref), recipe, str(pool), seeds, last))
    sides = designs.sides_of(store().read(pool), store().read(splits))
    notes = [
        *_notes(screenings, final, trainings),
        *_undelivered(screenings, set(starts.values()), gate),
        *rewards_of_form({str(ref): recipe.arguments for ref, recipe in recipes.items()}),
    ]
    return designs.findings_of(
        {
            "designs": made,
            "recipes": [designs.recipe_row(str(ref), recipe.arguments) for ref, recipe in recipes.items()],
            "leaks": [*designs.leak_rows(*sides, {}, f"{pool}, {splits}"), *_taught(trainings, sides[0])],
            "coverage": [row for ref in diversities for row in _coverage(ref, held)],
            "mislabelled": [row for ref in screenings for row in _mislabelled(ref, sizes)],
            "form": [
                {"arm": _policy(ref).arm, "problems": problems, "place": str(ref)}
                | form_of(store().read(ref, FORM_COLUMNS))
                for ref, problems, _ in sampled
            ],
            "exposed": [row for ref in trainings for row in _exposed(ref, pool, splits)],
            "stops": [_steps(ref) for ref in trainings],
            "notes": notes,
        }
    )


def _taught(trainings: Sequence[Ref], held: pa.Table) -> list[Row]:
    """Return near-duplicates between the held-out problems and the problems of earlier trainings (lessons)."""
    lessons, waiting = set[tuple[str, str]](), list(trainings)
    while waiting:
        for init in store().manifest(waiting.pop()).recipe.inputs.get("init", []):
            inputs = store().manifest(Ref.parse(init)).recipe.inputs
            if "pool" in inputs:  # the training data of an imported adapter is unknown
                lessons.add((inputs["pool"][0], inputs["splits"][0]))
                waiting.append(Ref.parse(init))
    rows = list[Row]()
    for at, side in sorted(lessons):
        lesson, split = (store().read(Ref.parse(text)) for text in (at, side))
        rows += designs.lesson_leak_rows(held, lesson, split, f"{at}, {side}")
    return rows


def _policy(rollouts: Ref) -> Policy:
    return restored(Policy, _sampling_arguments(rollouts)["policy"])


def _sampling_arguments(rollouts: Ref) -> Mapping[str, Any]:
    """Return the sampling arguments of rollouts. Raise UserError for imported rollouts."""
    if (arguments := sampled_with(rollouts)) is None:
        raise UserError(f"{rollouts} was imported, so its sampling settings are unknown")
    return arguments


def _sampled(ref: Ref, problems: str, role: str) -> Row:
    arguments = _sampling_arguments(ref)
    counted = query(
        """
        select count(distinct problem_id) as num_problems, avg((finish = 'length')::int) as truncated,
               string_agg(distinct grader_version, '+' order by grader_version) as grader from t
        """,
        t=store().read(ref, ["problem_id", "finish", "grader_version"]),
    ).to_pylist()[0]
    policy, sampling = restored(Policy, arguments["policy"]), restored(Sampling, arguments["sampling"])
    row = designs.design(str(ref), role, policy, sampling, problems, arguments["group_size"])
    return row | counted | {"family": f"{role} of {problems} at step {policy.step}"}


def _notes(screenings: Sequence[Ref], final: Sequence[Ref], trainings: Sequence[Ref]) -> Iterator[Row]:
    """Yield warnings about single runs, and about arms whose answers are graded by different rules."""

    def note(code: str, said: str, *places: object) -> Row:
        return {"code": code, "said": said, "place": ", ".join(map(str, places))}

    policies, kinds = {ref: _policy(ref) for ref in (*screenings, *final)}, dict[str, set[str]]()
    for ref in screenings:
        policy = policies[ref]
        kinds.setdefault(policy.scaffold.answer_kind, set()).add(policy.arm)
        if policy.adapter is not None:
            made = store().manifest(Ref.parse(policy.adapter))
            if made.recipe.stage == "import_adapter":  # its training data is unknown
                text = f"{policy.arm} starts from {made.provenance.notes['adapter']}, which was trained elsewhere"
                yield note("adapter_made_elsewhere", text, ref, policy.adapter)
    if len(kinds) > 1:
        text = " and ".join(f"{', '.join(sorted(arms))} as {kind}" for kind, arms in sorted(kinds.items()))
        yield note("answer_kinds", f"answers are judged of {text}", *screenings)
    for ref in (*screenings, *final):
        all_reasons = store().read(ref, ["reason"])["reason"].to_pylist()
        if raised := [reason for reason in all_reasons if reason and reason.startswith(RAISED)]:
            of_arm = f"{len(raised)} of {len(all_reasons)} rollouts of {policies[ref].arm}"
            yield note("grader_raised", f"{of_arm} are ungradable, the first {raised[0]}", ref)
    for ref in trainings:
        rows = store().read(ref, ["arm", "updates"])
        if rows.num_rows and not any(rows["updates"].to_pylist()):
            text = f"none of the {rows.num_rows} steps of {rows['arm'][0]} made an update"
            yield note("no_update", text, ref)


def _undelivered(screenings: Sequence[Ref], trained: Set[str], gate: Gate) -> list[Row]:
    """Return why trained arms miss the study's gate, or why they cannot be compared."""
    arms, places = [], {}
    for ref in screenings:
        policy = _policy(ref)
        if policy.arm in trained:
            shares, taught = form_of(store().read(ref, FORM_COLUMNS)), policy.adapter is not None
            arms.append(ScreenedArm(arm=policy.arm, shares=shares, live=None, taught=taught))
            places[policy.arm] = str(ref)
    return [
        {"code": "gate", "said": reason.words, "place": ", ".join(places[arm] for arm in reason.arms)}
        for reason in reasons(arms, gate)
    ]


def rewards_of_form(trainings: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    """Yield rewards for tags, if the trained scaffolds have different tags. trainings: arguments by ref."""
    tags = {ref: restored(Policy, arguments["start"]).scaffold.pairs for ref, arguments in trainings.items()}
    for ref, arguments in trainings.items():
        learner, has = restored(LearnerConfig, arguments["learner"]), " and ".join(tags[ref]) or "no tags"
        for name in (term.name for term in learner.rewards if term.name in OF_FORM and len({*tags.values()}) > 1):
            text = f"the reward '{name}' pays for {has}; another trained arm has other tags"
            yield {"code": "reward_of_form", "said": text, "place": ref}


def _steps(training: Ref) -> Row:
    """Return the requested number of steps of a training, and the last step that was executed."""
    learner = restored(LearnerConfig, store().manifest(training).recipe.arguments["learner"])
    executed = max(store().read(training, ["step"])["step"].to_pylist(), default=0)
    counted = {"run": str(training), "requested": learner.steps, "executed": executed}
    return counted | {"reason": "by its own rows", "place": str(training)}


def _exposed(training: Ref, pool: Ref, splits: Ref) -> list[Row]:
    """Return a training's problems and groups by source; empty for a copy without the training's files."""
    file = store().files(training) / "exposure.parquet"
    if not file.exists():
        return []
    return query(
        """
        select arm, source, problems, sum(problems) over () as all_problems, groups, sum(groups) over () as all_groups,
               $place as place
        from (select arm, source, count(*) as problems from problems group by all)
        join (select source, count(*) as groups from exposure group by all) using (source)
        """,
        {"place": str(training)},
        problems=designs.trained_on(training, store().read(pool, ["problem_id", "source"]), store().read(splits)),
        exposure=pq.read_table(file, columns=["source"]),
    ).to_pylist()


def _coverage(diversity: Ref, problems: str) -> list[Row]:
    return query(
        """
        select arm, "window", avg(coverage) as coverage, $problems as problems, 'measured' as basis, $place as place
        from t where coverage is not null and "window" = 'whole' group by arm, "window"
        """,
        {"problems": problems, "place": str(diversity)},
        t=store().read(diversity),
    ).to_pylist()


def _mislabelled(screening: Ref, sizes: Mapping[str, int]) -> list[Row]:
    """Return the screening's groups whose band would change at the training's group size. sizes: group size by arm."""
    counts = query(
        "select arm, count(*) as n, count(*) filter (where correct) as c from t group by arm, problem_id",
        t=store().read(screening, ["arm", "problem_id", "correct"]),
    ).to_pylist()
    arm = str(counts[0]["arm"]) if counts else ""
    return designs.mislabelled_rows(arm, [(row["n"], row["c"]) for row in counts], sizes[arm]) if arm in sizes else []
