"""The training stage: what it draws, with the demo model and a real engine."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from storage.artifacts.kinds import Pool, Splits, Training
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.ledger import Ledger
from tasks.domain.grading.grading import ActiveGrader, Overrides
from tasks.domain.grpo.learner_config import LEAST_TEMPERATURE, LearnerConfig, check_sampling
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.engines.hardware import Hardware
from tasks.engines.toolbox import Toolbox
from tasks.pool import make_synthetic_pool
from tasks.rollouts import account_of
from tasks.splits import split_pool
from tasks.stage import Session, session, toolbox
from tasks.training import place_of, step_sampling, train_adapter

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


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    store = Store(tmp_path / "store")
    store.prepare()
    hardware = Hardware(engine="transformers", device="cpu", threads=1)
    toolbox = Toolbox(hardware, places={START.model.sha256: DEMO})
    with session(Session(store, toolbox)):
        pool = make_synthetic_pool(per_source=4, seed=0)
        yield Lab(store, pool, split_pool(pool=pool, heldout_per_source=1, seed=0))
        toolbox.close()


def texts(store: Store, policy: Policy, sampling: Sampling) -> dict[str, dict[int, str]]:
    """problem → rollout → its text."""
    table = Ledger(store.root).read(account_of(policy, sampling))
    assert table is not None
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for row in table.select(["problem_id", "rollout", "completion"]).to_pylist():
        found[row["problem_id"]][row["rollout"]] = row["completion"]
    return found


def test_a_problem_that_comes_round_again_is_drawn_anew(lab: Lab) -> None:
    """Both steps train on the whole pool. Rollouts that equal the last visit's are as many as two unrelated draws of
    one problem give (within three standard errors); with one seed for both visits all of them are."""
    made = train_adapter(
        pool=lab.pool,
        splits=lab.splits,
        bands=None,
        start=START,
        learner=STILL,
        rollouts=DRAW,
        evaluation=EVALUATION,
        evaluation_group_size=4,
    )
    after = [replace(START, adapter=str(made), adapter_step=step, step=step) for step in (1, 2)]
    first = texts(lab.store, START, step_sampling(DRAW, 0, 1))
    second = texts(lab.store, after[0], step_sampling(DRAW, 0, 2))
    assert first.keys() == second.keys() and len(first) >= 6
    same = np.array([[a == b for b in second[p].values()] for p in first for a in first[p].values()])
    same = same.reshape(len(first), STILL.group_size, STILL.group_size)
    again = same.diagonal(axis1=1, axis2=2)
    others = same[:, ~np.eye(STILL.group_size, dtype=bool)]
    chance = others.mean()
    assert chance < 0.5
    assert again.mean() <= chance + 3 * np.sqrt(chance * (1 - chance) / again.size)
    # evaluations are paired across steps: with weights that stand still, they are the same
    assert texts(lab.store, START, EVALUATION) == texts(lab.store, after[1], EVALUATION)


def test_lessons_of_one_pool_and_one_seed_draw_noise_of_their_own(lab: Lab) -> None:
    """A training that starts from another, with the same seeds and the same problems: with weights that stand still
    it would else sample the same texts again. The first one draws as it always did."""
    short = replace(STILL, steps=1, group_size=4)
    start, training, drawn = START, None, []
    for place in range(3):
        training = train_adapter(
            pool=lab.pool,
            splits=lab.splits,
            bands=None,
            start=start,
            learner=short,
            rollouts=DRAW,
            evaluation=EVALUATION,
            evaluation_group_size=0,
            init=training,
        )
        assert place_of(training) == place + 1
        drawn.append(texts(lab.store, start, step_sampling(DRAW, 0, 1, place)))
        start = replace(start, adapter=str(training), adapter_step=1)
    assert step_sampling(DRAW, 0, 1, 0) == step_sampling(DRAW, 0, 1)
    seeds = {step_sampling(DRAW, seed, step, place).seed for seed in (0, 1) for step in (1, 2) for place in (0, 1, 2)}
    assert len(seeds) == 12
    for one, other in combinations(drawn, 2):
        assert one.keys() == other.keys()
        assert sum(one[p] == other[p] for p in one) < len(one) / 2


def test_rollouts_that_the_learner_cannot_be_exact_about_are_refused(lab: Lab) -> None:
    """Before anything is sampled; evaluations may be drawn so. vLLM draws at the least temperature where a lower one is
    asked for."""
    from vllm import SamplingParams

    assert SamplingParams(temperature=0.005).temperature == LEAST_TEMPERATURE
    for wrong, said in (
        ({"top_p": 0.9}, "rollouts.top_p is 0.9"),
        ({"temperature": 0.0}, "rollouts.temperature is 0:"),
        ({"temperature": 0.005}, "rollouts.temperature is 0.005"),
    ):
        with pytest.raises(UserError, match=said) as raised:
            check_sampling(replace(DRAW, **wrong))
        assert "\n" not in str(raised.value)
        with pytest.raises(UserError, match=said):
            train_adapter(
                pool=lab.pool,
                splits=lab.splits,
                bands=None,
                start=START,
                learner=STILL,
                rollouts=replace(DRAW, **wrong),
                evaluation=EVALUATION,
                evaluation_group_size=4,
            )
    assert not list(Ledger(lab.store.root).accounts())


def test_a_training_remade_for_other_rewards_takes_no_rollouts_of_its_former_weights(lab: Lab) -> None:
    """They lie in the ledger under its name. For the same rewards they are its own, and none is sampled again."""
    plain, strict = ActiveGrader(), ActiveGrader(overrides=Overrides({("7", "7"): ("wrong", "a test")}))

    def made(grader: ActiveGrader) -> Training:
        tools = toolbox()
        tools.grader = grader
        with session(Session(lab.store, tools)):
            return train_adapter(
                pool=lab.pool,
                splits=lab.splits,
                bands=None,
                start=START,
                learner=replace(STILL, groups_per_step=2, group_size=2),
                rollouts=DRAW,
                evaluation=EVALUATION,
                evaluation_group_size=1,
            )

    def forget(training: Training) -> None:
        shutil.rmtree(lab.store.path(training))
        shutil.rmtree(lab.store.root / ".work" / str(training), ignore_errors=True)

    training = made(plain)
    forget(training)
    sampled = lab.store.manifest(made(plain)).provenance.notes["sampled_rollouts"]
    assert sampled == "0"
    forget(training)
    with pytest.raises(UserError, match=r"move away the 2 folders") as raised:
        made(strict)
    assert strict.version in str(raised.value)
    for folder in (lab.store.root / "ledger").glob("*/*"):
        if str(training) in (folder / "about.json").read_text():
            shutil.rmtree(folder)
    notes = lab.store.manifest(made(strict)).provenance.notes
    assert int(notes["sampled_rollouts"]) > 0 and notes["engine"] and notes["serving"]
