"""Arms, end to end: screened, trained, evaluated. What one step makes is handed to the next.

Problems are prepared once for all arms. An arm that is evaluated with another arm's adapter receives that training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flows.problems import Prepared, prepare
from flows.study.resolve import Study
from storage.artifacts.kinds import Bands, Diversity, Embeddings, Rollouts, Training
from tasks.benchmarks import ASKED
from tasks.domain.arms import ARMS
from tasks.domain.grpo.types import evaluated_steps
from tasks.domain.policies import Policy
from tasks.embedding import EncoderSpec, embed_traces
from tasks.measures.bands import classify_bands, keep_joint
from tasks.measures.diversity import measure_diversity
from tasks.regrading import regrade
from tasks.sampling import sample_rollouts, screen_adaptively
from tasks.stage import grouped
from tasks.training import train_adapter


@dataclass(frozen=True, slots=True)
class Measured:
    """One policy on the held-out problems. `deep`: with as many rollouts as the asymptote asks for. `benchmarks`:
    on the problems of each benchmark."""

    rollouts: Rollouts
    embeddings: Embeddings
    diversity: Diversity
    deep: Rollouts | None
    benchmarks: tuple[Rollouts, ...]


@dataclass(frozen=True, slots=True)
class Trained:
    """One arm under one seed. `curve`: held-out rollouts at every evaluated step; `end`: the last one measured."""

    seed: int
    training: Training
    curve: tuple[Rollouts, ...]
    end: Measured


@dataclass(frozen=True, slots=True)
class Start:
    """A policy and the training that holds its adapter; null for a base model."""

    policy: Policy
    training: Training | None = None

    def after(self, training: Training, step: int, seed: int = 0) -> Start:
        return Start(replace(self.policy, adapter=str(training), adapter_step=step, step=step, seed=seed), training)


@dataclass(frozen=True, slots=True)
class Screened:
    """An arm where its studied training starts. rollouts, bands: as the study's grader judges them; trained_on:
    the bands as graded when they were made, which is what the arm is trained on, whatever is overridden later."""

    arm: str
    start: Start
    rollouts: Rollouts
    bands: Bands
    trained_on: Bands


@dataclass(frozen=True, slots=True)
class ArmArtifacts:
    screened: Screened
    start: Measured
    trained: tuple[Trained, ...]

    @property
    def measured(self) -> tuple[Measured, ...]:
        return (self.start, *(t.end for t in self.trained))


def heads(arms: Sequence[str]) -> tuple[str, ...]:
    """The arms that train, each once: those whose adapters these arms are evaluated with."""
    return tuple(dict.fromkeys(ARMS[arm].trained_as for arm in arms))


def rounds(arms: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arms that can be made at once: one of each training, then those that are evaluated with an adapter of these."""
    first = [h if h in arms else next(arm for arm in arms if ARMS[arm].trained_as == h) for h in heads(arms)]
    return first, [arm for arm in arms if arm not in first]


def make_arms(study: Study, at: Prepared, arms: Sequence[str]) -> tuple[ArmArtifacts, ...]:
    """These arms of a study, end to end, each under its own name: screen, band, train, evaluate, measure diversity."""
    p = study.profile
    training = bool(p.training.steps and p.seeds)
    joint = [head for head in heads(p.arms) if training and p.train_on == "joint"]
    needed = dict.fromkeys([*(heads(arms) if training and p.train_on != "all" else ()), *joint, *arms])
    taught = {head: _taught(study, at, head) for head in heads(tuple(needed))}
    screened = {
        a: grouped(f"screen {a}", lambda a=a: _screened(study, at, a, taught[ARMS[a].trained_as])) for a in needed
    }
    made: dict[tuple[str, int], Training] = {}

    def make(arm: str) -> ArmArtifacts:
        head, start = ARMS[arm].trained_as, screened[arm].start
        before, trained = _measured(study, at, start), []
        first = (_evaluated(study, at, start, p.evaluation.group_size),) if training else ()
        for seed in p.seeds if training else ():
            if (head, seed) not in made:
                shared = tuple(screened[other].trained_on for other in joint if other != head)
                bands = None if p.train_on == "all" else screened[head].trained_on
                made[head, seed] = _trained(study, at, _start(study, head, taught[head]), bands, shared, seed)
            trained.append(_evaluated_after(study, at, start, first, made[head, seed], seed))
        return ArmArtifacts(screened[arm], before, tuple(trained))

    return tuple(grouped(arm, lambda arm=arm: make(arm)) for arm in arms)


def _start(study: Study, arm: str, taught: Start | None) -> Start:
    """Where the studied training of an arm starts, and what is screened: the base model after its head's lessons."""
    base = Policy(arm=arm, model=study.models[arm])
    if taught is None:
        return Start(base)
    adapter, step = taught.policy.adapter, taught.policy.adapter_step
    return Start(replace(base, adapter=adapter, adapter_step=step), taught.training)


def _taught(study: Study, at: Prepared, head: str) -> Start | None:
    """The policy after the profile's lessons for this arm, each started from the one before; null without any."""
    p, taught = study.profile, None
    for lesson in p.lessons:
        if head in lesson.arms:
            start = _start(study, head, taught)
            training = train_adapter.titled(f"lesson {lesson.name} for {head}")(
                pool=at.lessons[lesson.name].pool,
                splits=at.lessons[lesson.name].splits,
                bands=None,
                start=start.policy,
                learner=lesson.training,
                rollouts=lesson.rollouts,
                evaluation=p.evaluation.sampling,
                evaluation_group_size=0,
                init=start.training,
            )
            taught = start.after(training, lesson.training.steps)
    return taught


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


def _trained(
    study: Study, at: Prepared, start: Start, bands: Bands | None, shared: tuple[Bands, ...], seed: int
) -> Training:
    """The arm's adapter. bands: its own; null for all problems. shared: of the other arms, where all train on what
    every one of them has in its variance band."""
    p, arm = study.profile, start.policy.arm
    if bands is not None and p.train_on == "joint":
        bands = keep_joint.titled(f"joint band of {arm}")(own=bands, others=shared)
    return train_adapter.titled(f"train {arm} seed {seed}")(
        pool=at.studied.pool,
        splits=at.studied.splits,
        bands=bands,
        start=start.policy,
        learner=replace(p.training, seed=seed),
        rollouts=p.rollouts,
        evaluation=p.evaluation.sampling,
        evaluation_group_size=p.evaluation.group_size,
        init=start.training,
    )


def _evaluated_after(
    study: Study, at: Prepared, start: Start, first: tuple[Rollouts, ...], training: Training, seed: int
) -> Trained:
    """first: the rollouts at step 0, which are the same for every seed."""
    p = study.profile
    steps = evaluated_steps(p.training.steps, p.training.eval_every)
    policies = [start.after(training, step, seed) for step in steps[1:]]
    curve = tuple(_evaluated(study, at, policy, p.evaluation.group_size) for policy in policies)
    return Trained(seed, training, first + curve, _measured(study, at, policies[-1]))


def _evaluated(study: Study, at: Prepared, start: Start, group_size: int, *, final: bool = False) -> Rollouts:
    plan, policy = study.profile.final if final else study.profile.evaluation, start.policy
    rollouts = sample_rollouts.titled(f"evaluate {policy.arm} at step {policy.step}")(
        pool=at.studied.pool,
        splits=at.studied.splits,
        policy=policy,
        sampling=plan.sampling,
        group_size=group_size,
        split="heldout",
        training=start.training,
        lora_rank=study.profile.training.lora_rank,
    )
    return regrade(rollouts=rollouts, pool=at.studied.pool, grader=study.grader)


def _asked(study: Study, at: Prepared, start: Start) -> tuple[Rollouts, ...]:
    """Rollouts of one policy on each benchmark."""
    p, policy, made = study.profile, start.policy, []
    for benchmark, chosen in zip(p.benchmarks, at.benchmarks, strict=True):
        rollouts = sample_rollouts.titled(f"{benchmark.name}: {policy.arm} at step {policy.step}")(
            pool=chosen.pool,
            splits=chosen.choice,
            policy=policy,
            sampling=p.final.sampling,
            group_size=benchmark.group_size,
            split=ASKED,
            training=start.training,
            lora_rank=p.training.lora_rank,
        )
        made.append(regrade(rollouts=rollouts, pool=chosen.pool, grader=study.grader))
    return tuple(made)


def _measured(study: Study, at: Prepared, start: Start) -> Measured:
    p, e = study.profile, study.profile.encoder
    rollouts = _evaluated(study, at, start, p.final.group_size, final=True)
    where = f"{start.policy.arm} at step {start.policy.step}"
    encoder = EncoderSpec(e.name, study.encoder_sha256, e.max_tokens, e.windows, study.encoder_formerly)
    embeddings = embed_traces.titled(f"embed {where}")(rollouts=rollouts, encoder=encoder)
    diversity = measure_diversity.titled(f"diversity {where}")(embeddings=embeddings)
    deep = _evaluated(study, at, start, p.asymptote, final=True) if p.asymptote else None
    return Measured(rollouts, embeddings, diversity, deep, _asked(study, at, start))


def run_arm(study: Study, arm: str) -> ArmArtifacts:
    """One arm alone, with the problems it needs: the unit that a GPU worker or a process runs."""
    return make_arms(study, prepare(study), [arm])[0]
