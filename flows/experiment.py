"""Does a wider search give reinforcement learning more to climb? The whole experiment as one DAG."""

from __future__ import annotations

from collections.abc import Sequence

from flows.arm import Measured, benchmarks, problems, run_arm
from flows.study.resolve import Study
from storage.artifacts.ref import Ref
from tasks.measures.audit import audit_designs
from tasks.measures.bands import cross_bands
from tasks.measures.curves import training_curves
from tasks.measures.diversity import compare_diversity, measure_answers, measure_ceilings
from tasks.measures.pass_at_k import contrast_pass_at_k, estimate_pass_at_k, follow_to_the_end
from tasks.measures.solved_by import find_hard_problems
from tasks.measures.tokens import measure_tokens
from tasks.measures.votes import measure_votes
from tasks.report.render import render_report
from tasks.stage import grouped

QUESTION = (
    "Does a reasoning scaffold – a panel of experts debating, against a private <think> monologue – widen what one"
    " sample searches, and does that width turn into reinforcement-learning signal?"
)


def experiment(study: Study) -> Ref:
    """Every arm, then what compares them. Returns the report."""
    p = study.profile
    at, chosen = problems(study), benchmarks(study)
    arms = [grouped(name, lambda name=name: run_arm(study, name)) for name in p.arms]
    bands = tuple(arm.bands for arm in arms)
    screenings = tuple(arm.screening for arm in arms)
    trainings = tuple(dict.fromkeys(t.training for arm in arms for t in arm.trained))
    curve = tuple(dict.fromkeys(ref for arm in arms for t in arm.trained for ref in t.curve))
    measured = tuple(m for arm in arms for m in arm.measured)
    final = tuple(m.rollouts for m in measured)
    diversities = tuple(m.diversity for m in measured)
    deep = tuple(m.deep for m in measured if m.deep is not None)
    crosstab = cross_bands(bands, p.training.group_size)
    curves = training_curves(trainings, curve or final, at.pool, at.splits)
    compared = compare_diversity(diversities)
    passk = estimate_pass_at_k(final, p.passk.ks, p.passk.draws, p.passk.seed)
    contrasts = contrast_pass_at_k(final, p.passk.ks, p.passk.draws, p.passk.seed)
    answers = tuple(measure_answers(ref) for ref in final)
    votes = measure_votes(final, p.passk.ks)
    ceilings = measure_ceilings(tuple(m.embeddings for m in measured))
    asymptotes = follow_to_the_end(deep) if deep else None
    sliced = tuple(ref for m in measured for ref in m.benchmarks)
    slices, slice_contrasts = pass_at_k_by_benchmark(study, measured)
    tokens = measure_tokens(final)
    hard = find_hard_problems(final)
    audit = audit_designs(at.pool, at.splits, screenings, trainings, final, diversities)
    return render_report(
        p.name,
        p.purpose,
        QUESTION,
        study.model.name,
        p.arms,
        at.pool,
        at.splits,
        screenings,
        bands,
        crosstab,
        trainings,
        curve,
        curves,
        diversities,
        compared,
        passk,
        tokens,
        hard,
        final,
        audit,
        contrasts,
        answers,
        votes,
        ceilings,
        asymptotes,
        tuple(c.splits for c in chosen),
        sliced,
        slices,
        slice_contrasts,
    )


def pass_at_k_by_benchmark(study: Study, measured: Sequence[Measured]) -> tuple[tuple[Ref, ...], tuple[Ref, ...]]:
    """pass@k and its contrasts on each benchmark, up to all of its rollouts."""
    p, passk, contrasts = study.profile.passk, [], []
    for place, benchmark in enumerate(study.profile.benchmarks):
        n = benchmark.group_size
        rollouts, ks = tuple(m.benchmarks[place] for m in measured), tuple(sorted({k for k in p.ks if k < n} | {n}))
        passk.append(estimate_pass_at_k.titled(f"pass@k on {benchmark.name}")(rollouts, ks, p.draws, p.seed))
        contrasts.append(contrast_pass_at_k.titled(f"contrast on {benchmark.name}")(rollouts, ks, p.draws, p.seed))
    return tuple(passk), tuple(contrasts)
