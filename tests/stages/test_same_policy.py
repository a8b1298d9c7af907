"""An engine that samples from other weights than it was given is found out before its rollouts are entered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.artifacts.kinds import Pool, Splits, Training
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.ledger import Ledger
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.packing import PromptGroup
from tasks.domain.policies import BaseModel, Policy, Sampling, ServedAdapter
from tasks.engines.adapter_files import served_name
from tasks.engines.hardware import Hardware
from tasks.engines.sampling.same_policy import EXACT, ROUNDED, Limits, few, gap, refuse_other_weights
from tasks.engines.sampling.transformers import TransformersGenerator
from tasks.engines.toolbox import Toolbox
from tasks.pool import make_synthetic_pool
from tasks.rollouts import account_of
from tasks.sampling import sample_rollouts
from tasks.splits import split_pool
from tasks.stage import Session, session
from tasks.training import train_adapter

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"
START = Policy(arm="panel", model=BaseModel(name="demo", sha256="0" * 64))
DRAW = Sampling(max_tokens=32, seed=2)
LEARNER = LearnerConfig(
    steps=2, groups_per_step=8, group_size=4, learning_rate=5e-2, lora_rank=4, lora_alpha=4, eval_every=2
)


@pytest.fixture
def given(tmp_path: Path) -> Iterator[dict[str, Any]]:
    store = Store(tmp_path / "store")
    store.prepare()
    hardware = Hardware(engine="transformers", device="cpu", threads=1)
    toolbox = Toolbox(hardware, places={START.model.sha256: DEMO})
    with session(Session(store, toolbox)):
        pool = make_synthetic_pool(per_source=4, seed=0)
        yield {"pool": pool, "splits": split_pool(pool=pool, heldout_per_source=1, seed=0), "store": store}
        toolbox.close()


def trained(pool: Pool, splits: Splits, **changed: Any) -> Training:
    return train_adapter(
        pool=pool,
        splits=splits,
        bands=None,
        start=START,
        learner=replace(LEARNER, **changed),
        rollouts=DRAW,
        evaluation=DRAW,
        evaluation_group_size=1,
    )


def entered(store: Store, training: str, step: int, draw: Sampling) -> object:
    policy = replace(START, adapter=training, adapter_step=step, step=step)
    return Ledger(store.root).read(account_of(policy, draw))


def test_other_weights_end_a_training_and_an_evaluation(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With staleness too, whose rollouts are scored when the learner has moved on."""
    store = given.pop("store")
    for staleness in (0, 1):
        trained(**given, staleness=staleness)
    made = trained(**given)
    notes = store.manifest(made).provenance.notes
    assert 0 < float(notes["logprob_gap"]) < EXACT.doubtful
    serve = TransformersGenerator._policy
    monkeypatch.setattr(TransformersGenerator, "_policy", lambda self, adapter: serve(self, None))
    for staleness in (0, 1):
        with pytest.raises(UserError, match=r"panel at step .: transformers samples from other weights .* the base"):
            trained(**given, staleness=staleness, seed=1)
    after = replace(START, adapter=str(made), adapter_step=2, step=2)
    how = {"policy": after, "training": made, "group_size": 4, "split": "heldout", "lora_rank": 4}
    deeper = replace(DRAW, seed=5)
    with pytest.raises(UserError, match="panel at step 2: transformers samples from other weights"):
        sample_rollouts(**given, **how, sampling=deeper)
    assert entered(store, str(made), 2, deeper) is None
    monkeypatch.undo()
    deeper = replace(DRAW, seed=6)
    sample_rollouts(**given, **how, sampling=deeper)
    assert entered(store, str(made), 2, deeper) is not None


def test_one_name_for_other_files_is_another_adapter(tmp_path: Path) -> None:
    names = set()
    for arm in ("panel", "thinking"):
        folder = tmp_path / arm
        folder.mkdir()
        (folder / "adapter_model.safetensors").write_bytes(b"weights")
        names |= {served_name(ServedAdapter("step 1", folder)), served_name(ServedAdapter("step 1", folder))}
    (folder / "adapter_model.safetensors").write_bytes(b"others")
    assert len(names) == 2 and served_name(ServedAdapter("step 1", folder)) not in names


def rows(count: int, apart: float, tokens: int = 40) -> list[tuple[Sampling, dict[str, Any]]]:
    """Rollouts whose log-probs are `apart` from -1, as rounding spreads them."""
    noise = np.random.default_rng(0).normal(0, apart, (count, tokens)).astype(np.float32)
    return [(DRAW, {"prompt_ids": [1, 2], "token_ids": list(range(tokens)), "logprobs": row_T - 1}) for row_T in noise]


@pytest.mark.parametrize(
    ("limits", "apart", "of_base", "refused"),
    [
        (ROUNDED, 0.03, 0.0, False),  # the most that was measured in bfloat16, and a base model that fits perfectly
        (ROUNDED, 0.09, 0.09, False),  # doubtful, and the base model fits no better
        (ROUNDED, 0.09, 0.03, True),
        (ROUNDED, 0.25, 0.25, True),
        (EXACT, 1e-4, 0.0, False),
        (EXACT, 0.05, 0.05, True),
    ],
)
def test_limits(limits: Limits, apart: float, of_base: float, refused: bool) -> None:
    sampled = few(rows(32, apart))
    assert sampled is not None and len(sampled.behaviour_K) >= 512

    def score(groups: list[PromptGroup], temperature: float, *, base: bool = False) -> np.ndarray:
        return sampled.behaviour_K + np.float32(of_base) if base else learned_K

    learned_K = np.full(len(sampled.behaviour_K), -1.0)
    if refused:
        with pytest.raises(UserError, match="samples from other weights"):
            refuse_other_weights(sampled, score, limits, "panel", "vllm")  # type: ignore[arg-type]
    else:
        found = refuse_other_weights(sampled, score, limits, "panel", "vllm")  # type: ignore[arg-type]
        assert found == gap(sampled, learned_K)


def test_other_weights_are_far_off_at_few_tokens() -> None:
    """So they were with another arm's adapter: 0.05 in the mean, which rounding can be too."""
    sampled = few(rows(32, 0.01))
    assert sampled is not None
    learned_K = sampled.behaviour_K.copy()
    learned_K[::20] -= 0.9
    assert np.abs(learned_K - sampled.behaviour_K).mean() < 0.05

    def score(groups: object, temperature: float, *, base: bool = False) -> np.ndarray:
        return learned_K

    with pytest.raises(UserError, match="samples from other weights"):
        refuse_other_weights(sampled, score, ROUNDED, "panel", "vllm")


def test_too_few_tokens_tell_nothing() -> None:
    assert few(rows(2, 0.1, tokens=20)) is None and few(rows(4, 0.1, tokens=20)) is not None
