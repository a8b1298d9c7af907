"""One arm, end to end: the unit that a GPU worker runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from flows.resolve import Study
from storage.artifacts import Ref
from tasks.bands import classify_bands
from tasks.demo_pool import make_synthetic_pool
from tasks.diversity import measure_diversity
from tasks.domain.arms import ARMS
from tasks.domain.policies import Policy
from tasks.embedding import EncoderSpec, embed_traces
from tasks.pool import PoolPolicy, build_pool
from tasks.sampling import sample_rollouts
from tasks.splits import split_pool
from tasks.training import train_adapter


@dataclass(frozen=True, slots=True)
class Problems:
    pool: Ref
    splits: Ref


@dataclass(frozen=True, slots=True)
class Trained:
    """One arm under one seed. `curve`: held-out rollouts at every evaluated step; `after`: at the last, with more."""

    seed: int
    training: Ref
    curve: tuple[Ref, ...]
    after: Ref
    diversity: Ref


@dataclass(frozen=True, slots=True)
class ArmArtifacts:
    arm: str
    screening: Ref
    bands: Ref
    before: Ref
    diversity: Ref
    trained: tuple[Trained, ...]


def problems(study: Study) -> Problems:
    """The pool and its split: the same for every arm, made before any model is seen."""
    p = study.profile.pool
    if study.sources:
        pool = build_pool(study.sources, PoolPolicy(on_issue=p.on_issue, limit=p.limit))
    else:
        pool = make_synthetic_pool(p.synthetic, p.seed)
    return Problems(pool, split_pool(pool, p.heldout_per_source, p.split_seed))


def evaluated_steps(study: Study) -> list[int]:
    """Step 0, every `eval_every`, and the last one: the result is never the best of several checkpoints."""
    training = study.profile.training
    return sorted({*range(0, training.steps, training.eval_every), training.steps})


def run_arm(study: Study, arm: str) -> ArmArtifacts:
    p, spec = study.profile, ARMS[arm]
    at = problems(study)
    base = Policy(arm=arm, model=study.model)
    screening, bands = _screened(study, at, base)
    before = _evaluated(study, at, base, None, final=True)
    diversity = _diversity(study, before, base)
    trained = []
    for seed in p.seeds if p.training.steps else ():
        training = _training(study, at, spec.trained_as, seed)
        curve = []
        for step in evaluated_steps(study):
            policy = replace(base, adapter=str(training), step=step) if step else base
            curve.append(_evaluated(study, at, policy, training))
        last = replace(base, adapter=str(training), step=p.training.steps)
        after = _evaluated(study, at, last, training, final=True)
        trained.append(Trained(seed, training, tuple(curve), after, _diversity(study, after, last)))
    return ArmArtifacts(arm, screening, bands, before, diversity, tuple(trained))


def _screened(study: Study, at: Problems, base: Policy) -> tuple[Ref, Ref]:
    draw = study.profile.screening
    screening = sample_rollouts.titled(f"screen {base.arm}")(
        at.pool, at.splits, base, draw.sampling, draw.group_size, lora_rank=study.profile.training.lora_rank
    )
    return screening, classify_bands.titled(f"band {base.arm}")(screening)


def _training(study: Study, at: Problems, arm: str, seed: int) -> Ref:
    """The arm's adapter, trained on its own variance band minus held-out."""
    p, base = study.profile, Policy(arm=arm, model=study.model)
    _, bands = _screened(study, at, base)
    return train_adapter.titled(f"train {arm} seed {seed}")(
        at.pool, at.splits, bands, base, replace(p.training, seed=seed), p.rollouts, p.evaluation.sampling,
        p.evaluation.group_size,
    )  # fmt: skip


def _evaluated(study: Study, at: Problems, policy: Policy, training: Ref | None, *, final: bool = False) -> Ref:
    draw = study.profile.final if final else study.profile.evaluation
    return sample_rollouts.titled(f"evaluate {policy.arm} at step {policy.step}")(
        at.pool, at.splits, policy, draw.sampling, draw.group_size, split="heldout",
        training=training if policy.step else None, lora_rank=study.profile.training.lora_rank,
    )  # fmt: skip


def _diversity(study: Study, rollouts: Ref, policy: Policy) -> Ref:
    e = study.profile.encoder
    encoder = EncoderSpec(e.name, study.encoder_sha256, e.max_tokens, e.window)
    where = f"{policy.arm} at step {policy.step}"
    return measure_diversity.titled(f"diversity {where}")(embed_traces.titled(f"embed {where}")(rollouts, encoder))
