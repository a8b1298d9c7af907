"""A study of toy stages that has the experiment's shape: what can be made apart is asked of it."""

from dataclasses import replace
from pathlib import Path

from flows.study.profiles import QWEN_1_5B
from flows.study.resolve import PoolInputs, Study
from tasks.domain.policies import BaseModel, Sampling
from tasks.domain.scaffolds import ARMS
from tasks.engines.hardware import Hardware

MODEL = BaseModel(name="toy", sha256="5" * 64)
DRAW = Sampling(max_tokens=64, seed=3)
HARDWARE = Hardware(batch_size=16, shard_rollouts=64)


def toy_study() -> Study:
    profile = replace(QWEN_1_5B, arms=tuple(list(ARMS)[:4]), hardware=HARDWARE)
    return Study(profile, dict.fromkeys(ARMS, MODEL), {"": PoolInputs(())}, "d" * 64, {MODEL.sha256: Path()}, {})
