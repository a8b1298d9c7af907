"""Arms, end to end: screened, trained, evaluated. What one step makes is handed to the next.

Problems are prepared once for all arms. An arm that is evaluated with another arm's adapter receives that training.
One that is evaluated as it is receives none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flows.artifacts import ArmArtifacts, Measured, Otherwise, Screened, Start, Trained
from flows.gate import gate_of
from flows.problems import Prepared, encoder_of
from flows.study.profile import Objective, SamplingPlan
from flows.study.resolve import Study
from storage.artifacts.kinds import Bands, Benchmark, Pool, Rollouts, Searches, Splits, Training
from tasks.attempts import Attempts
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.second_scaffold import second_scaffold
from tasks.domain.grpo.steps import evaluated_steps
from tasks.domain.policies import Policy, Sampling, check_bases
from tasks.domain.search.method import CERTAINTY
from tasks.domain.search.registry import method_named, with_base
from tasks.embedding import embed_traces
from tasks.measures.bands import classify_bands, keep_joint
from tasks.measures.diversity import measure_diversity
from tasks.regrading import regrade
from tasks.sampling import sample_rollouts, screen_adaptively
from tasks.searches import search_problems
from tasks.splits import ASKED
from tasks.stage import grouped, only_noted, provided, store
from tasks.training import STEP, import_adapter, train_adapter


def make_arms(study: Study, at: Prepared) -> tuple[ArmArtifacts, ...]:
    """A study's arms, end to end, each under its own name: screen, band, train, evaluate, measure diversity."""
    p, arms = study.profile, study.profile.arms
    training = bool(p.training.steps and p.seeds)
    heads = p.heads(arms) if training else ()
    joint = heads if p.train_on == "joint" else ()
    needed = [*dict.fromkeys([*heads, *arms])]
    attempts = Attempts.of(arms)
    taught = attempts.each((p.arm(a).head for a in needed), lambda head: _taught(study, at, head))
    needed = [a for a in needed if p.arm(a).head in taught]
    check_bases(study.models, [p.arm(a) for a in needed if training or taught[p.arm(a).head]])
    screened = attempts.each(
        needed, lambda a: grouped(f"screen {a}", lambda: _screened(study, at, a, taught[p.arm(a).head]))
    )
    banded = heads if p.train_on != "all" else ()
    live = {head: _live(head, screened, joint) for head in banded if screened.keys() >= {head, *joint}}
    gate = gate_of(study, at.studied.splits, [screened[head] for head in heads if head in screened])
    made: dict[tuple[str, int], Training] = {}

    def make(arm: str) -> ArmArtifacts:
        head = p.arm(arm).head
        with only_noted() as steps:
            for seed in p.seeds if head in heads else ():
                for objective in (None, *(p.objectives if head == arm else ())):
                    _trained(study, at, _start(study, head, taught[head]), live.get(head), seed, objective)
        trained = all(store().fresh(step.ref) for step in steps)
        with provided(None if trained else gate):
            return make_all(arm)

    def make_all(arm: str) -> ArmArtifacts:
        head, start = p.arm(arm).head, screened[arm].start
        trains = training and head in p.heads([arm])
        plans = (*_finally(study), *_compared(study), p.evaluation) if trains else _finally(study)
        heldout = _heldout(study, at, start, plans)
        before, trained = _measured(study, at, start, heldout), []
        for seed in p.seeds if trains else ():
            if (head, seed) not in made:
                made[head, seed] = _trained(study, at, _start(study, head, taught[head]), live.get(head), seed)
            trained.append(_evaluated_after(study, at, start, heldout[p.evaluation], made[head, seed], seed))
        otherwise = [
            _otherwise(study, at, start, live.get(arm), seed, objective)
            for objective in (p.objectives if trains and head == arm else ())
            for seed in p.seeds
        ]
        return ArmArtifacts(screened[arm], before, tuple(trained), tuple(otherwise))

    ready = [a for a in arms if a in screened and (p.arm(a).head in live or p.arm(a).head not in banded)]
    artifacts = attempts.each(ready, lambda arm: grouped(arm, lambda: make(arm)))
    attempts.finish(arms)
    return tuple(artifacts[arm] for arm in arms)


def _start(study: Study, arm: str, taught: Start | None) -> Start:
    """Where the studied training of an arm starts, and what is screened: the base model after its head's lessons."""
    base = Policy(arm=arm, model=study.models[arm], scaffold=study.profile.arm(arm).scaffold)
    if taught is None:
        return Start(base)
    adapter, step = taught.policy.adapter, taught.policy.adapter_step
    return Start(replace(base, adapter=adapter, adapter_step=step), taught.training)


def _taught(study: Study, at: Prepared, head: str) -> Start | None:
    """The policy after the profile's lessons for this arm, each started from the one before, the first from an adapter
    that was made elsewhere; null without any of these."""
    p, taught = study.profile, _made_elsewhere(study, head)
    for lesson in p.lessons:
        if head in lesson.arms and p.arm(head).trains:
            start = _start(study, head, taught)
            where, how = at.lessons[lesson.name], (lesson.training, lesson.rollouts)
            title = f"lesson {lesson.name} for {head}"
            training = _adapter(study, at, title, start, where.pool, where.splits, None, *how, 0)
            taught = start.after(training, lesson.training.steps)
    return taught


def _made_elsewhere(study: Study, head: str) -> Start | None:
    if (adapter := study.adapters.get(head)) is None:
        return None
    imported = import_adapter.titled(f"adapter of {head}")(adapter=adapter, base=study.models[head])
    return _start(study, head, None).after(imported, STEP)


def _screened(study: Study, at: Prepared, arm: str, taught: Start | None) -> Screened:
    plan, start = study.profile.screening, _start(study, arm, taught)
    sample = screen_adaptively if plan.adaptive else sample_rollouts
    rollouts = sample.titled(f"screen {arm}")(
        pool=at.studied.pool,
        splits=at.studied.splits,
        policy=start.policy,
        sampling=plan.sampling,
        group_size=plan.group_size,
        training=start.training,
        lora_rank=study.profile.training.lora_rank,
    )
    band = classify_bands.titled(f"band {arm}")
    trained_on = band(rollouts=rollouts)
    judged = regrade(rollouts=rollouts, pool=at.studied.pool, grader=study.grader)
    return Screened(arm, start, judged, trained_on if judged == rollouts else band(rollouts=judged), trained_on)


def _live(head: str, screened: Mapping[str, Screened], joint: Sequence[str]) -> Bands:
    """Bands whose variance band a head is trained on: its own, or of that what every arm of `joint` has in its own."""
    own, others = screened[head].trained_on, tuple(screened[arm].trained_on for arm in joint if arm != head)
    return keep_joint.titled(f"joint band of {head}")(own=own, others=others) if joint else own


def _otherwise(
    study: Study, at: Prepared, start: Start, bands: Bands | None, seed: int, objective: Objective
) -> Otherwise:
    """The arm by another objective: the same start, problems and seeds."""
    plan = _compared(study)[0]
    training = _trained(study, at, start, bands, seed, objective)
    end = start.after(training, objective.training.steps, seed)
    return Otherwise(objective.name, training, _heldout(study, at, end, (plan,), f" by {objective.name}")[plan])


def _trained(
    study: Study, at: Prepared, start: Start, bands: Bands | None, seed: int, objective: Objective | None = None
) -> Training:
    """The adapter of an arm. bands: null for all problems. objective: null for the study's own."""
    p, arm = study.profile, start.policy.arm
    by = f" by {objective.name}" if objective else ""
    learner = replace(objective.training if objective else p.training, seed=seed)
    title, group_size = f"train {arm} seed {seed}{by}", p.evaluation.group_size
    return _adapter(study, at, title, start, at.studied.pool, at.studied.splits, bands, learner, p.rollouts, group_size)


def _adapter(
    study: Study,
    at: Prepared,
    title: str,
    start: Start,
    pool: Pool,
    splits: Splits,
    bands: Bands | None,
    learner: LearnerConfig,
    rollouts: Sampling,
    evaluation_group_size: int,
) -> Training:
    """With what its objective needs beside the rollouts."""
    needs = ADVANTAGES[learner.advantage].needs
    return train_adapter.titled(title)(
        pool=pool,
        splits=splits,
        bands=bands,
        start=start.policy,
        learner=learner,
        rollouts=rollouts,
        evaluation=study.profile.evaluation.sampling,
        evaluation_group_size=evaluation_group_size,
        init=start.training,
        second=second_scaffold(learner, start.policy.scaffold),
        calibration=at.calibration if "vectors" in needs else None,
        context=study.profile.hardware.max_model_len if "refinements" in needs else None,
    )


def _evaluated_after(
    study: Study, at: Prepared, start: Start, first: Rollouts, training: Training, seed: int
) -> Trained:
    """first: the rollouts at step 0, which are the same for every seed."""
    p = study.profile
    *earlier, end = (
        start.after(training, step, seed) for step in evaluated_steps(p.training.steps, p.training.eval_every)[1:]
    )
    curve = tuple(_heldout(study, at, policy, (p.evaluation,))[p.evaluation] for policy in earlier)
    heldout = _heldout(study, at, end, (p.evaluation, *_finally(study), *_compared(study)))
    return Trained(seed, training, (first, *curve, heldout[p.evaluation]), _measured(study, at, end, heldout))


def _finally(study: Study) -> tuple[SamplingPlan, ...]:
    """How a policy is sampled that is measured: as all are and, where the asymptote is asked for, deeper."""
    p = study.profile
    return (p.final, replace(p.final, group_size=p.asymptote)) if p.asymptote else (p.final,)


def _compared(study: Study) -> tuple[SamplingPlan, ...]:
    """How policies are sampled by which objectives are compared; empty where none are."""
    p = study.profile
    return (replace(p.final, group_size=p.objective_group_size),) if p.objectives else ()


def _heldout(
    study: Study, at: Prepared, start: Start, plans: Sequence[SamplingPlan], by: str = ""
) -> Mapping[SamplingPlan, Rollouts]:
    """Rollouts of one policy on the held-out problems, by plan: equal plans are one artifact."""
    pool, splits, p = at.studied.pool, at.studied.splits, study.profile
    known = [("curve", p.evaluation), *zip(("final", "asymptote"), _finally(study), strict=False)]
    known += [("objectives", plan) for plan in _compared(study)]
    names = {plan: " and ".join(name for name, one in known if one == plan) for plan in plans}
    return {
        plan: _sampled(
            study, start, f"evaluate{by}", pool, splits, "heldout", plan, f" ({name}, {plan.group_size} each)"
        )
        for plan, name in names.items()
    }


def _asked(study: Study, at: Prepared, start: Start) -> tuple[Rollouts, ...]:
    final, several = study.profile.final, zip(study.profile.benchmarks, at.benchmarks, strict=True)
    return tuple(
        _sampled(study, start, f"{b.name}:", c.pool, c.choice, ASKED, replace(final, group_size=b.group_size))
        for b, c in several
    )


def _sampled(
    study: Study,
    start: Start,
    what: str,
    pool: Pool,
    splits: Splits | Benchmark,
    split: str,
    plan: SamplingPlan,
    how: str = "",
) -> Rollouts:
    """how: of its title, which plan it is."""
    policy = start.policy
    rollouts = sample_rollouts.titled(f"{what} {policy.arm} at step {policy.step}{how}")(
        pool=pool,
        splits=splits,
        policy=policy,
        sampling=plan.sampling,
        group_size=plan.group_size,
        split=split,
        training=start.training,
        lora_rank=study.profile.training.lora_rank,
    )
    return regrade(rollouts=rollouts, pool=pool, grader=study.grader)


def _measured(study: Study, at: Prepared, start: Start, heldout: Mapping[SamplingPlan, Rollouts]) -> Measured:
    where, (final, *deeper) = f"{start.policy.arm} at step {start.policy.step}", _finally(study)
    embeddings = diversity = None
    if study.profile.embeds:
        embeddings = embed_traces.titled(f"embed {where}")(rollouts=heldout[final], encoder=encoder_of(study))
        diversity = measure_diversity.titled(f"diversity {where}")(embeddings=embeddings)
    deep = heldout[deeper[0]] if deeper else None
    compared = next((heldout[plan] for plan in _compared(study) if plan in heldout), None)
    searches = search(study, at, start)
    return Measured(heldout[final], embeddings, diversity, deep, _asked(study, at, start), compared, searches)


def search(study: Study, at: Prepared, start: Start) -> tuple[Searches, ...]:
    """One artifact a method, and one of the method whose rollouts they share; none where no method is asked for."""
    p, policy = study.profile, start.policy
    methods = with_base({name: method_named(name) for name in p.search.methods})
    return tuple(
        search_problems.titled(f"{name}: {policy.arm} at step {policy.step}")(
            pool=at.studied.pool,
            splits=at.studied.splits,
            policy=policy,
            sampling=p.final.sampling,
            name=name,
            method=method,
            tokens=p.search.tokens,
            context=p.hardware.max_model_len,
            grader_version=study.grader.version,
            split="heldout",
            training=start.training,
            lora_rank=p.training.lora_rank,
            reward=study.reward if method.reward not in ("", CERTAINTY) else None,
        )
        for name, method in methods.items()
    )
