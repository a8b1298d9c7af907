"""Does a wider search give reinforcement learning more to climb? The whole experiment as one DAG."""

from __future__ import annotations

from flows.arm import problems, run_arm
from flows.resolve import Study
from storage.artifacts import Ref
from tasks.bands import cross_bands
from tasks.curves import training_curves
from tasks.diversity import compare_diversity
from tasks.hard import find_hard_problems
from tasks.passk import estimate_pass_at_k
from tasks.report import render_report
from tasks.tokens import measure_tokens


def experiment(study: Study) -> Ref:
    """Every arm, then what compares them. Returns the report."""
    p = study.profile
    at = problems(study)
    arms = [run_arm(study, arm) for arm in p.arms]
    final = tuple(ref for arm in arms for ref in (arm.before, *(t.after for t in arm.trained)))
    crosstab = cross_bands(tuple(arm.bands for arm in arms), p.training.group_size)
    diversity = compare_diversity(
        tuple(ref for arm in arms for ref in (arm.diversity, *(t.diversity for t in arm.trained)))
    )
    passk = estimate_pass_at_k(final, p.passk.ks, p.passk.draws, p.passk.seed)
    tokens = measure_tokens(final)
    hard = find_hard_problems(final)
    curves = training_curves(_trainings(arms), _evaluations(arms), at.pool, at.splits)
    return render_report(...)
