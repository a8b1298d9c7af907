"""A store made before scaffolds were held by content (commit 945f2b3): what it holds is found under its former names.

`tests/golden/former_names.json` is what that commit called the artifacts and accounts that `asked` asks for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.domain.problems.sources import SourceSpec
from tasks.domain.scaffolds import PANEL
from tasks.engines.toolbox import Toolbox
from tasks.former_names import SCAFFOLDS
from tasks.measures.bands import classify_bands
from tasks.pool import PoolPolicy, build_pool
from tasks.rollouts import account_of
from tasks.sampling import sample_rollouts
from tasks.splits import split_pool
from tasks.stage import Session, session
from tasks.training import train_adapter

FORMER: dict[str, str] = json.loads((Path(__file__).parents[1] / "golden" / "former_names.json").read_text())
#: Its files are called otherwise today; then they were the digest `aaaa…`.
MODEL = BaseModel(name="a model", sha256="c" * 64, formerly="a" * 64)
PUBLISHED = replace(PANEL)  # PANEL is what it was then, or these tests are of no use: see the first of them
LEARNER = LearnerConfig(steps=3, groups_per_step=2, group_size=4, learning_rate=1e-3, lora_rank=4, lora_alpha=4)
DRAW, EVALUATION = Sampling(max_tokens=32, seed=2), Sampling(max_tokens=32, temperature=0.7, seed=3)


class Holding(Store):
    """A store that says it has these artifacts."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        super().__init__(root)
        self.names = set(names)

    def fresh(self, ref: Ref) -> bool:
        return str(ref) in self.names


def asked(store: Store, policy: Policy, learner: LearnerConfig = LEARNER) -> dict[str, Ref]:
    with session(Session(store, Toolbox(), planning=True)):
        pool = build_pool(sources=(SourceSpec("amc", "b" * 64),), policy=PoolPolicy(limit=9, grader="3"))
        splits = split_pool(pool=pool, heldout_per_source=1, seed=0)
        drawn = {"pool": pool, "splits": splits, "sampling": EVALUATION, "group_size": 4}
        screening = sample_rollouts(**drawn, policy=policy)
        bands = classify_bands(rollouts=screening)
        trained = {"pool": pool, "splits": splits, "learner": learner, "rollouts": DRAW, "evaluation": EVALUATION}
        training = train_adapter(**trained, evaluation_group_size=2, bands=bands, start=policy)
        after = replace(policy, adapter=str(training), adapter_step=3, step=3)
        evaluated = sample_rollouts(**drawn, policy=after, split="heldout", training=training, lora_rank=4)
        chained = train_adapter(**trained, evaluation_group_size=2, bands=None, start=after, init=training)
    return {
        "pool": pool,
        "splits": splits,
        "screening": screening,
        "bands": bands,
        "training": training,
        "evaluated": evaluated,
        "chained": chained,
    }


def found(tmp_path: Path, policy: Policy, learner: LearnerConfig = LEARNER) -> set[str]:
    """What is found of all that the former commit made."""
    refs = asked(Holding(tmp_path, list(FORMER.values())), policy, learner)
    return {name for name, ref in refs.items() if str(ref) == FORMER[name]}


def test_artifacts_are_found_under_their_former_names(tmp_path: Path) -> None:
    """All but a training that starts from another: it draws noise of its own now."""
    assert SCAFFOLDS["panel"] == PUBLISHED.digest, "the panel was reworded: give these tests a policy with the old one"
    assert found(tmp_path, Policy(arm="panel", model=MODEL)) == FORMER.keys() - {"chained", "base", "adapter", "drawn"}


def test_where_nothing_is_there_everything_has_its_name_of_today(tmp_path: Path) -> None:
    refs = asked(Store(tmp_path), Policy(arm="panel", model=MODEL))
    named = {str(ref) for ref in refs.values()}
    assert not named & set(FORMER.values())
    same = asked(Store(tmp_path), Policy(arm="panel", model=replace(MODEL, name="renamed", formerly="")))
    assert {str(ref) for ref in same.values()} == named


@pytest.mark.parametrize("name", ["template", "trace_tag", "stop"])
def test_a_former_name_stands_for_the_scaffold_of_then(tmp_path: Path, name: str) -> None:
    other = replace(PANEL, **{name: ("another",) if name == "stop" else "another {problem}"})
    assert found(tmp_path, Policy(arm="panel", model=MODEL, scaffold=other)) == {"pool", "splits"}


def test_what_a_former_name_leaves_unsaid_is_not_taken_for_granted(tmp_path: Path) -> None:
    """Another model of which nothing is known; a training with other settings."""
    assert found(tmp_path, Policy(arm="panel", model=replace(MODEL, formerly=""))) == {"pool", "splits"}
    other = found(tmp_path, Policy(arm="panel", model=MODEL), replace(LEARNER, tag_weight=0.3))
    assert other == {"pool", "splits", "screening", "bands"}


def test_a_training_that_was_begun_goes_on_under_its_former_name(tmp_path: Path) -> None:
    """Its rollouts stand in the ledger under that name, its checkpoints in that folder."""
    held = [FORMER[name] for name in ("pool", "splits", "screening", "bands")]
    policy = Policy(arm="panel", model=MODEL)
    assert str(asked(Holding(tmp_path, held), policy)["training"]) != FORMER["training"]
    (tmp_path / ".work" / FORMER["training"] / "checkpoints").mkdir(parents=True)
    assert str(asked(Holding(tmp_path, held), policy)["training"]) == FORMER["training"]


def test_the_ledger_looks_under_its_former_accounts() -> None:
    policy = Policy(arm="panel", model=MODEL)
    after = replace(policy, adapter=FORMER["training"], adapter_step=3, step=3)
    for name, account in (
        ("base", account_of(policy, EVALUATION)),
        ("adapter", account_of(after, EVALUATION)),
        ("drawn", account_of(after, DRAW)),
    ):
        assert account.former is not None
        assert f"{account.former.policy}/{account.former.sampling}" == FORMER[name]
        assert account.policy != account.former.policy
