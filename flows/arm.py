"""One arm, end to end: the unit that a GPU worker runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from flows.study.resolve import Study
from storage.artifacts.ref import Ref
from tasks.benchmarks import ASKED, choose_benchmark
from tasks.domain.arms import ARMS
from tasks.domain.policies import Policy
from tasks.embedding import EncoderSpec, embed_traces
from tasks.measures.bands import classify_bands, keep_joint
from tasks.measures.diversity import measure_diversity
from tasks.pool import PoolPolicy, as_first_checked, build_pool
from tasks.regrading import in_force
from tasks.sampling import sample_rollouts, screen_adaptively
from tasks.splits import split_pool
from tasks.synthetic_pool import make_synthetic_pool
from tasks.training import train_adapter


@dataclass(frozen=True, slots=True)
class Problems:
    """A pool, and what of it is for what: a split, or the choice of a benchmark."""

    pool: Ref
    splits: Ref


@dataclass(frozen=True, slots=True)
class Measured:
    """One policy on the held-out problems. `deep`: with as many rollouts as the asymptote asks for. `benchmarks`:
    on the problems of each benchmark."""

    rollouts: Ref
    embeddings: Ref
    diversity: Ref
    deep: Ref | None
    benchmarks: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class Trained:
    """One arm under one seed. `curve`: held-out rollouts at every evaluated step; `end`: the last one measured."""

    seed: int
    training: Ref
    curve: tuple[Ref, ...]
    end: Measured


@dataclass(frozen=True, slots=True)
class ArmArtifacts:
    arm: str
    screening: Ref
    bands: Ref
    start: Measured
    trained: tuple[Trained, ...]

    @property
    def measured(self) -> tuple[Measured, ...]:
        return (self.start, *(t.end for t in self.trained))


def problems(study: Study, lesson: str = "") -> Problems:
    """The pool and its split: the same for every arm, made before any model is seen."""
    p = next((x.pool for x in study.profile.lessons if x.name == lesson), study.profile.pool)
    if sources := study.sources[lesson]:
        pool = build_pool(sources, as_first_checked(sources, PoolPolicy(on_issue=p.on_issue, limit=p.limit)))
    else:
        pool = make_synthetic_pool(p.synthetic, p.seed)
    return Problems(pool, split_pool(pool, p.heldout_per_source, p.split_seed))


def benchmarks(study: Study) -> tuple[Problems, ...]:
    """The problems of each benchmark that nothing in this study trains on, whatever the arm."""
    p = study.profile
    trained = [problems(study, lesson) for lesson in study.sources] if p.benchmarks else []
    pools, splits = tuple(t.pool for t in trained), tuple(t.splits for t in trained)
    found = []
    for b in p.benchmarks:
        sources = study.benchmarks[b.name]
        pool = build_pool(sources, as_first_checked(sources, PoolPolicy(on_issue=p.pool.on_issue)))
        choose = choose_benchmark.titled(f"choose {b.name}")
        choice = choose(b.name, pool, pools, splits, b.levels, b.per_level, b.seed)
        found.append(Problems(pool, choice))
    return tuple(found)


def shared_problems(study: Study) -> tuple[Problems, ...]:
    """What every arm needs before it samples."""
    return (problems(study), *benchmarks(study))


def rounds(study: Study) -> tuple[list[str], list[str]]:
    """Arms that can be made at once: those that train, then those that are evaluated with an adapter of these."""
    arms = study.profile.arms
    heads = {ARMS[arm].trained_as: arm for arm in reversed(arms)}
    first = [arm for arm in arms if arm in heads.values()]
    return first, [arm for arm in arms if arm not in first]


def evaluated_steps(study: Study) -> list[int]:
    """Step 0, every `eval_every`, and the last one: the result is never the best of several checkpoints."""
    training = study.profile.training
    return sorted({*range(0, training.steps, training.eval_every), training.steps})


def run_arm(study: Study, arm: str) -> ArmArtifacts:
    """Screen, band, evaluate, train, evaluate again, measure diversity. An arm that does not train is evaluated with
    the adapter of the arm that it is trained as."""
    p, spec = study.profile, ARMS[arm]
    at = problems(study)
    start = _start(study, arm)
    screening = in_force(_screened(study, at, start)[0], at.pool)
    bands = classify_bands.titled(f"band {arm}")(screening)
    before = _measured(study, at, start)
    trained = []
    for seed in p.seeds if p.training.steps else ():
        training = _training(study, at, spec.trained_as, seed)
        curve = []
        for step in evaluated_steps(study):
            policy = start.after(training, step, seed) if step else start
            curve.append(_evaluated(study, at, policy, p.evaluation.group_size))
        last = start.after(training, p.training.steps, seed)
        trained.append(Trained(seed, training, tuple(curve), _measured(study, at, last)))
    return ArmArtifacts(arm, screening, bands, before, tuple(trained))


@dataclass(frozen=True, slots=True)
class Start:
    """A policy and the training that holds its adapter; null for a base model."""

    policy: Policy
    training: Ref | None = None

    def after(self, training: Ref, step: int, seed: int = 0) -> Start:
        return Start(replace(self.policy, adapter=str(training), adapter_step=step, step=step, seed=seed), training)


def _start(study: Study, arm: str) -> Start:
    """Where the studied training starts, and what is screened: the base model after the profile's lessons."""
    p = study.profile
    start = Start(Policy(arm=arm, model=study.model))
    for lesson in p.lessons:
        if ARMS[arm].trained_as in lesson.arms:
            at = problems(study, lesson.name)
            spelt = replace(start.policy, arm=ARMS[arm].trained_as)
            training = train_adapter.titled(f"lesson {lesson.name} for {spelt.arm}")(
                at.pool,
                at.splits,
                None,
                spelt,
                lesson.training,
                lesson.rollouts,
                p.evaluation.sampling,
                0,
                init=start.training,
            )
            taught = start.after(training, lesson.training.steps)
            start = Start(replace(taught.policy, step=0), training)
    return start


def _screened(study: Study, at: Problems, start: Start) -> tuple[Ref, Ref]:
    """(rollouts, bands) as graded when they were made: what the arm is trained on, whatever is settled later."""
    draw, arm = study.profile.screening, start.policy.arm
    sample = screen_adaptively if draw.adaptive else sample_rollouts
    screening = sample.titled(f"screen {arm}")(
        at.pool,
        at.splits,
        start.policy,
        draw.sampling,
        draw.group_size,
        training=start.training,
        lora_rank=study.profile.training.lora_rank,
    )
    return screening, classify_bands.titled(f"band {arm}")(screening)


def _training(study: Study, at: Problems, arm: str, seed: int) -> Ref:
    """The arm's adapter, trained on what `train_on` names, minus held-out."""
    p, start = study.profile, _start(study, arm)
    bands = None if p.train_on == "all" else _screened(study, at, start)[1]
    if bands is not None and p.train_on == "joint":
        others = [_start(study, other) for other in dict.fromkeys(ARMS[a].trained_as for a in p.arms) if other != arm]
        bands = keep_joint.titled(f"joint band of {arm}")(bands, tuple(_screened(study, at, o)[1] for o in others))
    return train_adapter.titled(f"train {arm} seed {seed}")(
        at.pool,
        at.splits,
        bands,
        start.policy,
        replace(p.training, seed=seed),
        p.rollouts,
        p.evaluation.sampling,
        p.evaluation.group_size,
        init=start.training,
    )


def _evaluated(study: Study, at: Problems, start: Start, group_size: int, *, final: bool = False) -> Ref:
    draw, policy = study.profile.final if final else study.profile.evaluation, start.policy
    rollouts = sample_rollouts.titled(f"evaluate {policy.arm} at step {policy.step}")(
        at.pool,
        at.splits,
        policy,
        draw.sampling,
        group_size,
        split="heldout",
        training=start.training,
        lora_rank=study.profile.training.lora_rank,
    )
    return in_force(rollouts, at.pool)


def _asked(study: Study, start: Start) -> tuple[Ref, ...]:
    """Rollouts of one policy on each benchmark."""
    p, policy, made = study.profile, start.policy, []
    for benchmark, at in zip(p.benchmarks, benchmarks(study), strict=True):
        rollouts = sample_rollouts.titled(f"{benchmark.name}: {policy.arm} at step {policy.step}")(
            at.pool,
            at.splits,
            policy,
            p.final.sampling,
            benchmark.group_size,
            split=ASKED,
            training=start.training,
            lora_rank=p.training.lora_rank,
        )
        made.append(in_force(rollouts, at.pool))
    return tuple(made)


def _measured(study: Study, at: Problems, start: Start) -> Measured:
    p, e = study.profile, study.profile.encoder
    rollouts = _evaluated(study, at, start, p.final.group_size, final=True)
    where = f"{start.policy.arm} at step {start.policy.step}"
    encoder = EncoderSpec(e.name, study.encoder_sha256, e.max_tokens, e.windows)
    embeddings = embed_traces.titled(f"embed {where}")(rollouts, encoder)
    diversity = measure_diversity.titled(f"diversity {where}")(embeddings)
    deep = _evaluated(study, at, start, p.asymptote, final=True) if p.asymptote else None
    return Measured(rollouts, embeddings, diversity, deep, _asked(study, start))
