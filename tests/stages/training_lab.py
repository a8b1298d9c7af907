"""A store with problems and the demo's model, and a call that trains on them: for tests of the training stage."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from storage.artifacts.schemas import Pool, Splits, Training
from storage.artifacts.store import Store
from storage.ledger import Ledger
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.engines.hardware import EngineName, Hardware
from tasks.engines.toolbox import Toolbox
from tasks.pool import make_synthetic_pool, split_pool
from tasks.rollouts import ensure_rollouts
from tasks.stage import Progress, Session, session
from tasks.training import train_adapter

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"
START = Policy(arm="panel", model=BaseModel(name="demo", sha256="0" * 64))
DRAW, EVALUATION = Sampling(max_tokens=32, seed=2), Sampling(max_tokens=32, seed=3)
#: A rate of zero: the policy stays what it is, so that only the noise can differ.
STILL = LearnerConfig(
    steps=2, groups_per_step=64, group_size=8, learning_rate=0.0, lora_rank=4, lora_alpha=4, eval_every=2
)


@dataclass
class Lab:
    store: Store
    pool: Pool
    splits: Splits
    toolbox: Toolbox

    def train(
        self, learner: LearnerConfig, listener: Callable[[Progress], None] = lambda _: None, **more: Any
    ) -> Training:
        """In a session of its own, as a run has."""
        given: dict[str, Any] = {"pool": self.pool, "splits": self.splits, "bands": None, "start": START}
        given |= {"rollouts": DRAW, "evaluation": EVALUATION, "evaluation_group_size": 0, "learner": learner}
        with session(Session(self.store, self.toolbox, listener=listener)):
            return train_adapter(**given | more)

    def notes(self, made: Training) -> dict[str, str]:
        return self.store.manifest(made).provenance.notes

    def weights(self, made: Training, step: int = 2, part: str = ".") -> bytes:
        return (self.store.files(made) / f"step-{step:04d}" / part / "adapter_model.safetensors").read_bytes()

    def diagnostics(self, made: Training) -> list[dict[str, Any]]:
        return pq.read_table(self.store.files(made) / "diagnostics.parquet").to_pylist()

    def paid(self) -> int:
        """Rollouts of the ledger."""
        book = Ledger(self.store.root)
        return sum(rows.num_rows for account, _ in book.accounts() if (rows := book.read(account)) is not None)

    def move(self) -> None:
        """To another store, with the problems alone."""
        store = Store(self.store.root.parent / "elsewhere")
        store.prepare()
        for ref in (self.pool, self.splits):
            shutil.copytree(self.store.path(ref), store.path(ref))
        self.store = store


def a_lab(root: Path, engine: EngineName = "transformers", per_source: int = 4, **hardware: Any) -> Iterator[Lab]:
    store = Store(root)
    store.prepare()
    tools = Toolbox(Hardware(engine=engine, device="cpu", threads=1, **hardware), places={START.model.sha256: DEMO})
    with session(Session(store, tools)):
        pool = make_synthetic_pool(per_source=per_source, seed=0)
        yield Lab(store, pool, split_pool(pool=pool, heldout_per_source=1, seed=0), tools)
    tools.close()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Its context is longer than the demo's: prompts that hold a draft and a critique are longer than others."""
    yield from a_lab(tmp_path / "store", max_model_len=1024)


def killed_and_resumed(lab: Lab, train: Callable[[], Training], after: int) -> Training:
    """Train, kill it after so many calls for rollouts, and resume: nothing that was paid for is sampled again."""
    calls = iter(range(1, 99))

    def dying(*given: Any, **others: Any) -> object:
        done = ensure_rollouts(*given, **others)
        if next(calls) == after:
            raise KeyboardInterrupt
        return done

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tasks.training.ensure_rollouts", dying)
        with pytest.raises(KeyboardInterrupt):
            train()
    before = lab.paid()
    made = train()
    assert before + int(lab.notes(made)["sampled_rollouts"]) == lab.paid()
    return made


def short(**changes: Any) -> LearnerConfig:
    return replace(STILL, **{"groups_per_step": 4, "group_size": 4, "learning_rate": 1e-3} | changes)
