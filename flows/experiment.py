"""The whole experiment as one DAG: problems, arms, measures, report."""

from collections.abc import Sequence
from dataclasses import replace

from flows.arm import make_arms
from flows.artifacts import ArmArtifacts, Measured, ObjectiveResult
from flows.problems import calibrated, prepare
from flows.study.resolve import Study
from storage.artifacts.schemas import (
    Calibrations,
    Evidence,
    Partitions,
    PassAtK,
    PassAtKContrasts,
    Problems,
    Report,
    Rollouts,
    Tables,
)
from tasks.domain.grpo.learner_config import BASELINE
from tasks.evidence import Available, standard_measures
from tasks.measures.audit import audit_designs
from tasks.measures.bands import cross_bands
from tasks.measures.curves import compare_gains, training_curves
from tasks.measures.diversity import compare_diversity, measure_answers
from tasks.measures.pass_at_k import contrast_pass_at_k, estimate_pass_at_k
from tasks.partitions import partition_answers, partition_rollouts
from tasks.report.render import Setup, render_report

QUESTION = (
    "Does a reasoning scaffold – a panel of experts debating, against a private <think> monologue – widen what one"
    " sample searches, and does that width turn into reinforcement-learning signal?"
)
#: The question of a study that states none, by the setting that the study changes.
QUESTION_BY_SETTING = {
    "search.methods": "which search solves most problems within the same tokens?",
    "objectives": "which objective gains more than the study's own?",
}


def experiment(study: Study) -> Report:
    """Make every arm and then the comparisons, and return the report."""
    p, passk = study.profile, study.profile.passk
    at = prepare(study)
    arms = make_arms(study, at)
    calibration = at.calibration or (calibrated(study) if p.embeds else None)
    measured = tuple(m for arm in arms for m in arm.measured)
    final = tuple(m.rollouts for m in measured)
    results = tuple(one for arm in arms for one in (*own_results(arm), *arm.objectives)) if p.objectives else ()
    starts = [(arm.start.name, arm.start.compared) for arm in arms if arm.start.compared is not None]
    ends = [(one.name, one.rollouts) for one in results]
    partitions = tuple(partitioned(study, m, calibration) for m in measured)
    slices, slice_contrasts = pass_at_k_by_benchmark(study, measured)
    evidence = Evidence(
        screenings=tuple(arm.screened.rollouts for arm in arms),
        bands=tuple(arm.screened.bands for arm in arms),
        trainings=tuple(dict.fromkeys(t.training for arm in arms for t in arm.trained)),
        evaluations=tuple(dict.fromkeys(ref for arm in arms for t in arm.trained for ref in t.curve)),
        final=final,
        diversities=tuple(m.diversity for m in measured if m.diversity),
        answers=tuple(
            measure_answers.titled(f"answers of {m.name}")(rollouts=m.rollouts, partitions=classes)
            for m, classes in zip(measured, partitions, strict=True)
        ),
        calibrations=(calibration,) if calibration else (),
        sliced=tuple(ref for m in measured for ref in m.benchmarks),
        searches=tuple(ref for m in measured for ref in m.searches),
    )
    tables = Tables(
        crosstab=cross_bands(bands=evidence.bands, train_group_size=p.training.group_size),
        curves=training_curves(
            trainings=evidence.trainings,
            evaluations=evidence.evaluations or final,
            final=final,
            pool=at.studied.pool,
            splits=at.studied.splits,
        ),
        diversity=compare_diversity(diversities=evidence.diversities),
        passk=estimate_pass_at_k(rollouts=final, ks=passk.ks, draws=passk.draws, seed=passk.seed),
        gain_differences=compare_gains(evaluations=final) if evidence.trainings and len(p.arms) > 1 else None,
        contrasts=contrast_pass_at_k(rollouts=final, ks=passk.ks, draws=passk.draws, seed=passk.seed),
        audit=audit_designs(
            pool=at.studied.pool,
            splits=at.studied.splits,
            screenings=evidence.screenings,
            trainings=evidence.trainings,
            final=final,
            diversities=evidence.diversities,
            gate=replace(p.gate, anyway=False),
        ),
        slices=slices,
        slice_contrasts=slice_contrasts,
        standard=standard_measures(
            Available(
                pool=at.studied.pool,
                splits=at.studied.splits,
                partitions=partitions,
                deep=tuple(m.deep for m in measured if m.deep is not None),
                embeddings=tuple(m.embeddings for m in measured if m.embeddings),
                arms=p.arms,
                ks=passk.ks,
                train_group_size=p.training.group_size,
                objectives=tuple(one.objective for one in results),
                objective_trainings=tuple(one.training for one in results),
                objective_starts=tuple(rollouts for _, rollouts in starts),
                objective_ends=tuple(rollouts for _, rollouts in ends),
                objective_start_answers=classes_of_answers(study, starts),
                objective_end_answers=classes_of_answers(study, ends),
                budgets=p.search.budgets(p.final.sampling.max_tokens),
                **evidence.arguments(),
            ),
            p.measures,
        ),
    )
    changed = (text for name, text in QUESTION_BY_SETTING.items() if any(c.startswith(name) for c in study.changes))
    question = p.purpose if "/" in p.name else next(changed, p.purpose)
    return render_report(
        setup=Setup(
            profile=p.name,
            purpose=study.in_numbers,
            question=QUESTION,
            model=study.model_names,
            arms=p.arms,
            title=p.title,
            about=p.about,
            changes=study.changes,
            settings=study.settings,
            prompts=study.prompts,
            command=study.command,
            asks=p.about or question,
            registered=study.registered,
            earlier_looks=study.earlier_looks,
            beside=study.beside,
        ),
        problems=Problems(
            pool=at.studied.pool, splits=at.studied.splits, benchmarks=tuple(choice for _, choice in at.benchmarks)
        ),
        evidence=evidence,
        tables=tables,
    )


def own_results(arm: ArmArtifacts) -> tuple[ObjectiveResult, ...]:
    """Return the study's own trainings, with which other objectives are compared."""
    ends = [(t, t.end.compared) for t in arm.trained]
    return tuple(ObjectiveResult(t.end.name, BASELINE, t.training, end) for t, end in ends if end is not None)


def partitioned(study: Study, measured: Measured, calibration: Calibrations | None) -> Partitions:
    """Return the partitions of a policy's rollouts: by answer, and by trace if traces are embedded."""
    if measured.embeddings is None or calibration is None:
        titled = partition_answers.titled(f"classes of {measured.name}")
        return titled(rollouts=measured.rollouts, grader_version=study.grader.installed)
    return partition_rollouts.titled(f"classes of {measured.name}")(
        rollouts=measured.rollouts,
        embeddings=measured.embeddings,
        calibration=calibration,
        grader_version=study.grader.installed,
    )


def classes_of_answers(study: Study, several: Sequence[tuple[str, Rollouts]]) -> tuple[Partitions, ...]:
    """Return the classes of answers of rollouts that compare objectives. several: (policy's name, rollouts)."""
    each = [(partition_answers.titled(f"answers compared of {name}"), rollouts) for name, rollouts in several]
    return tuple(stage(rollouts=rollouts, grader_version=study.grader.installed) for stage, rollouts in each)


def pass_at_k_by_benchmark(
    study: Study, measured: Sequence[Measured]
) -> tuple[tuple[PassAtK, ...], tuple[PassAtKContrasts, ...]]:
    """Return pass@k and its contrasts on each benchmark, up to its number of rollouts."""
    p, passk, contrasts = study.profile.passk, [], []
    for place, benchmark in enumerate(study.profile.benchmarks):
        n = benchmark.group_size
        rollouts, ks = tuple(m.benchmarks[place] for m in measured), tuple(sorted({k for k in p.ks if k < n} | {n}))
        estimate = estimate_pass_at_k.titled(f"pass@k on {benchmark.name}")
        passk.append(estimate(rollouts=rollouts, ks=ks, draws=p.draws, seed=p.seed))
        contrast = contrast_pass_at_k.titled(f"contrast on {benchmark.name}")
        contrasts.append(contrast(rollouts=rollouts, ks=ks, draws=p.draws, seed=p.seed))
    return tuple(passk), tuple(contrasts)
