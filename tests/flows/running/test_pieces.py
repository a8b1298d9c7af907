"""What of a study can be made apart, and what has to wait."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from flows.running.pieces import Piece, make_piece, next_pieces
from flows.running.sessions import stages_of
from flows.study.profiles import QWEN_1_5B
from flows.study.resolve import PoolInputs, Study
from storage.artifacts.schemas import Pool, Splits, Training
from storage.artifacts.store import Store
from storage.ledger import Ledger
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.domain.scaffolds import ARMS
from tasks.engines.hardware import Hardware
from tasks.engines.toolbox import Toolbox
from tasks.pool import make_synthetic_pool, split_pool
from tasks.sampling import sample_rollouts
from tasks.stage import Ref, stage
from tests.chaos.engines import PlainGraders, SeededGenerator

MODEL = BaseModel(name="toy", sha256="5" * 64)
DRAW = Sampling(max_tokens=64, seed=3)
HARDWARE = Hardware(batch_size=16, shard_rollouts=64)


def toy_study() -> Study:
    """A study that has the experiment's shape, to be made of toy stages."""
    profile = replace(QWEN_1_5B, arms=tuple(list(ARMS)[:4]), hardware=HARDWARE)
    return Study(profile, dict.fromkeys(ARMS, MODEL), {"": PoolInputs(())}, "d" * 64, {MODEL.sha256: Path()}, {})


def deeper(study: Study) -> Ref:
    """One policy asked the same problems twice, the second time for more rollouts."""
    pool = make_synthetic_pool(per_source=8, seed=0)
    asked = {"pool": pool, "splits": split_pool(pool=pool, heldout_per_source=4, seed=0), "sampling": DRAW}
    policy = Policy(arm=study.profile.arms[0], model=MODEL)
    sample_rollouts.titled("few")(policy=policy, group_size=4, **asked)
    return sample_rollouts.titled("many")(policy=policy, group_size=8, **asked)


@stage(Training, version=1)
def train_toy(*, pool: Pool, splits: Splits, start: Policy, evaluation: Sampling) -> pa.Table:
    """Takes what the real one takes that says whose rollouts it shares."""
    return Training.schema.empty_table()


def seeds_of_arms(study: Study) -> None:
    pool = make_synthetic_pool(per_source=8, seed=0)
    splits = split_pool(pool=pool, heldout_per_source=4, seed=0)
    for arm in study.profile.arms[:2]:
        for seed in (1, 2):
            start, draw = Policy(arm=arm, model=MODEL), replace(DRAW, seed=seed)
            train_toy.titled(f"{arm} {seed}")(pool=pool, splits=splits, start=start, evaluation=draw)


def screened(study: Study) -> Ref:
    pool = make_synthetic_pool(per_source=8, seed=0)
    asked = {"pool": pool, "splits": split_pool(pool=pool, heldout_per_source=4, seed=0), "sampling": DRAW}
    return sample_rollouts(policy=Policy(arm=study.profile.arms[0], model=MODEL), group_size=8, **asked)


def pieces_of(root: Path, dag: object) -> list[str]:
    store = Store(root)
    store.prepare()
    with stages_of(toy_study(), store) as current:
        return [piece.name for piece in next_pieces(current, toy_study(), set(), dag)]  # type: ignore[arg-type]


def test_two_samplings_of_one_policy_are_not_at_work_at_once(tmp_path: Path) -> None:
    """Both want the first four rollouts of every problem."""
    assert pieces_of(tmp_path, deeper) == ["few, shard 0", "few, shard 1"]


def test_arms_take_turns_so_that_an_interrupted_study_has_whole_seeds(tmp_path: Path) -> None:
    one, other = toy_study().profile.arms[:2]
    assert pieces_of(tmp_path, seeds_of_arms) == [f"{one} 1", f"{other} 1", f"{one} 2", f"{other} 2"]


def test_a_run_that_starts_again_asks_for_no_shard_that_is_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Toolbox, "generator", lambda *_: SeededGenerator())
    monkeypatch.setattr(Toolbox, "graders", lambda _: PlainGraders())
    store, study = Store(tmp_path), toy_study()
    store.prepare()

    def attempt(number: int) -> list[Piece]:
        """Make the first pieces that an attempt finds; return those that it leaves."""
        with stages_of(study, store) as current:
            pieces = next_pieces(current, study, set(), screened)
            for piece in pieces[:number]:
                make_piece(current, current.steps[-1], piece.shard, HARDWARE)
        return pieces[number:]

    others = attempt(2)
    assert others and attempt(0) == others and attempt(len(others)) == attempt(0) == []
    assert store.fresh(others[0].ref)
    (account, _), *_ = Ledger(tmp_path).accounts()
    assert Ledger(tmp_path).duplicates(account) == 0
