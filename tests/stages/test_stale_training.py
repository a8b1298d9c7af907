"""Sampling and training at once, with the demo model and real engines: the same bits twice, accounts by policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from storage.artifacts.store import Store
from storage.ledger import Ledger
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import Policy
from tasks.engines.hardware import EngineName, Hardware
from tasks.engines.toolbox import Toolbox
from tasks.pool import make_synthetic_pool
from tasks.rollouts import account_of
from tasks.splits import split_pool
from tasks.stage import Session, session
from tasks.training import step_sampling, train_adapter
from tests.stages.test_training import DEMO, DRAW, EVALUATION, START

STALE = LearnerConfig(
    steps=4, groups_per_step=4, group_size=4, learning_rate=1e-2, lora_rank=4, lora_alpha=4, eval_every=2, staleness=1
)


def trained(root: Path, engine: EngineName) -> tuple[Store, str, bytes]:
    store = Store(root)
    store.prepare()
    hardware = Hardware(engine=engine, device="cpu", threads=1)
    tools = Toolbox(hardware, places={START.model.sha256: DEMO})
    with session(Session(store, tools)):
        pool = make_synthetic_pool(per_source=6, seed=0)
        made = train_adapter(
            pool=pool,
            splits=split_pool(pool=pool, heldout_per_source=1, seed=0),
            bands=None,
            start=START,
            learner=STALE,
            rollouts=DRAW,
            evaluation=EVALUATION,
            evaluation_group_size=2,
        )
        tools.close()
    return store, str(made), (store.files(made) / "step-0004" / "adapter_model.safetensors").read_bytes()


@pytest.fixture(autouse=True)
def narrow() -> Iterator[None]:
    """One thread here, and OpenMP's default of all cores in any thread that is told nothing: vLLM refuses to run so."""
    # torch's own: vLLM on a CPU puts one that does nothing in its place
    before = torch.get_num_threads()
    torch._C.set_num_threads(1)
    yield
    torch._C.set_num_threads(before)


@pytest.mark.parametrize("engine", ["transformers", pytest.param("vllm", marks=pytest.mark.slow)])
def test_two_runs_are_one_and_rollouts_stand_under_the_policy_that_wrote_them(
    tmp_path: Path, engine: EngineName
) -> None:
    (store, name, one), (_, _, other) = (trained(tmp_path / run, engine) for run in ("one", "other"))
    assert one == other

    def rows(step: int, policy: Policy) -> int:
        table = Ledger(store.root).read(account_of(policy, step_sampling(DRAW, 0, step)))
        return 0 if table is None else table.num_rows

    after = {step: replace(START, adapter=name, adapter_step=step, step=step) for step in (1, 2, 3)}
    assert [rows(1, START), rows(2, START), rows(3, after[1]), rows(4, after[2])] == [16, 16, 16, 16]
    assert [rows(2, after[1]), rows(3, after[2]), rows(4, after[3])] == [0, 0, 0]
