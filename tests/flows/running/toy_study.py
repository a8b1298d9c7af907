"""A study of toy stages that has the experiment's shape: what can be made apart is asked of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from flows.study.profiles import QWEN_1_5B
from flows.study.resolve import PoolInputs, Study
from storage.artifacts.kinds import Bands, Embeddings, Rollouts, Training
from tasks.domain.arms import ARMS
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.engines.hardware import Hardware
from tasks.measures.bands import classify_bands
from tasks.measures.pass_at_k import estimate_pass_at_k
from tasks.pool import make_synthetic_pool
from tasks.sampling import sample_rollouts
from tasks.splits import split_pool
from tasks.stage import Ref, stage

MODEL = BaseModel(name="toy", sha256="5" * 64)
DRAW, GROUP, SEEDS = Sampling(max_tokens=64, seed=3), 8, (0, 1)
HARDWARE = Hardware(batch_size=16, shard_rollouts=64)


@stage(Training, version=1)
def toy_training(*, bands: Bands, seed: int) -> pa.Table:
    return Training.schema.empty_table()


@stage(Embeddings, version=1)
def toy_embedding(*, rollouts: Rollouts) -> pa.Table:
    return Embeddings.schema.empty_table()


def toy_experiment(study: Study) -> Ref:
    """The experiment's shape: every arm screened and banded, trained under each seed, asked the held-out, embedded."""
    pool = make_synthetic_pool(per_source=8, seed=0)
    splits = split_pool(pool=pool, heldout_per_source=4, seed=0)
    ends = []
    for arm in study.profile.arms:
        start = Policy(arm=arm, model=MODEL)
        asked = {"pool": pool, "splits": splits, "sampling": DRAW, "group_size": GROUP}
        bands = classify_bands(rollouts=sample_rollouts.titled(f"screen {arm}")(policy=start, **asked))
        for seed in SEEDS:
            training = toy_training.titled(f"train {arm} {seed}")(bands=bands, seed=seed)
            end = replace(start, adapter=str(training), adapter_step=1, step=1, seed=seed)
            ends.append(sample_rollouts.titled(f"evaluate {arm} {seed}")(policy=end, split="heldout", **asked))
            toy_embedding(rollouts=ends[-1])
    return estimate_pass_at_k(rollouts=tuple(ends), ks=(1, 4), draws=100)


def toy_study() -> Study:
    profile = replace(QWEN_1_5B, arms=tuple(list(ARMS)[:4]), hardware=HARDWARE)
    return Study(profile, dict.fromkeys(ARMS, MODEL), {"": PoolInputs(())}, "d" * 64, {MODEL.sha256: Path()}, {})
