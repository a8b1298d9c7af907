"""What can be asked by name: profiles, questions over them, benchmarks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flows.running.plan import plan
from flows.study.profiles import PROFILES
from flows.study.request import Request, profile_of
from flows.study.settings import overridden
from storage.artifacts.store import Store
from storage.errors import UserError
from tests.tiny_model import write_tiny_model


@pytest.mark.parametrize("asked", ["learning_rate=1e-3", "group_size=16", "groups_per_step=3", "token_budget=900"])
def test_what_a_study_changes_of_its_training_is_changed_under_every_objective(asked: str) -> None:
    """They are compared on the same budget, or the difference is of that."""
    before, after = PROFILES["demo/objectives"], overridden(PROFILES["demo/objectives"], [f"training.{asked}"])
    name = asked.split("=")[0]
    assert getattr(after.training, name) != getattr(before.training, name)
    assert {getattr(o.training, name) for o in after.objectives} == {getattr(after.training, name)}
    kept = {o.name: (o.training.advantage, o.training.loss, o.training.minibatches) for o in before.objectives}
    assert kept == {o.name: (o.training.advantage, o.training.loss, o.training.minibatches) for o in after.objectives}


HEAD = 'base = "demo"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[objectives.mine]\nadvantage = "max_rl"\nsteps = 5\n',
            "all objectives have the same steps; set training.steps",
        ),
        ('arms = ["panel", "thinking"]\nobjectives = ["VPO"]\n', "which scaffold thinking lacks"),
        ("[training]\ngroup_size = 2\n[objectives.entropic]\n", "needs a group_size of 3, not 2"),
    ],
)
def test_objectives_that_do_not_go_together_are_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as raised:
        profile_of("mine.toml", HEAD + text)
    assert "\n" not in str(raised.value)


# What a study may ask of test-time search: refused in one sentence before work starts.


WRONG = {
    "search.methods=majorty": r"unknown method 'majorty'; did you mean 'majority'\?",
    "search.methods=particles:temperature=0": r"method particles: .*temperature is 0; it must be greater than 0",
    "search.methods=majority,majority:width=16": r"search: methods: majority and majority:width=16 are the same method",
}


@pytest.mark.parametrize("setting", WRONG)
def test_a_method_that_cannot_be_served_is_refused(setting: str) -> None:
    with pytest.raises(UserError, match=WRONG[setting]) as raised:
        overridden(PROFILES["demo"], [setting])
    assert "\n" not in str(raised.value)


def test_a_reward_model_is_named_by_its_content(tmp_path: Path) -> None:
    """Methods that need none keep their names; a copy is the same one, other weights are another."""
    store, names = Store(tmp_path / "store"), list[dict[str, str]]()
    store.prepare()
    folder = write_tiny_model(tmp_path / "one", labels=1)
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    for place in (folder, copy, write_tiny_model(tmp_path / "other", labels=2)):
        planned = plan(asked(place).study(store), store)
        names.append({p.step.title: str(p.step.ref) for p in planned if p.step.ref.kind == "searches"})
    assert names[0] == names[1]
    same = {title for title in names[0] if names[0][title] == names[2][title]}
    assert {title for title in names[0] if "by=process" in title or "rewarded" in title} == set(names[0]) - same
    assert any("majority" in title for title in same)


def test_a_judge_is_named_by_its_content(tmp_path: Path) -> None:
    store, names = Store(tmp_path / "store"), list[str]()
    store.prepare()
    folder = write_tiny_model(tmp_path / "one")
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    for place in (folder, copy, write_tiny_model(tmp_path / "other", labels=2)):
        terms = ("training.rewards.correct.weight=1", f"training.rewards.judge.model={place}")
        study = Request(profile="demo", settings=("arms=panel", "seeds=0", *terms)).study(store)
        names += [str(p.step.ref) for p in plan(study, store) if p.step.ref.kind == "training"]
        assert place in study.places.values()
    assert names[0] == names[1] != names[2]


def asked(reward: Path) -> Request:
    methods = "majority,rewarded,beam:end=.:by=process"
    settings = (f"search.methods={methods}", f"search.reward={reward}", "seeds=()")
    return Request(profile="demo", settings=("arms=panel", *settings))


@pytest.mark.parametrize(
    ("methods", "base"),
    [("majority,early_stopped:width=32", "first:width=32"), ("majority:width=20,first:width=24", "first:width=24")],
)
def test_the_ceiling_knows_every_rollout_that_a_method_may_draw(tmp_path: Path, methods: str, base: str) -> None:
    """Else a wider method could pass it. There is one of it: two would be added up."""
    store = Store(tmp_path)
    store.prepare()
    settings = (f"search.methods={methods}", "seeds=()")
    planned = plan(Request(profile="demo", settings=("arms=panel", *settings)).study(store), store)
    titles = [p.step.title.rpartition(": ")[0] for p in planned if p.step.ref.kind == "searches"]
    assert [title for title in titles if title.startswith("first")] == [base]
    assert set(titles) >= {name for name in methods.split(",") if not name.startswith("first")}
