"""What can be asked by name: profiles, questions over them, benchmarks."""

import shutil
from pathlib import Path

import pytest

from flows.running.plan import plan
from flows.study.objectives import alike
from flows.study.profiles import PROFILES
from flows.study.request import Request, profile_of
from flows.study.settings import overridden
from storage.artifacts.store import Store
from tests.tiny_model import write_tiny_model


def test_what_a_study_changes_of_its_training_is_changed_under_every_objective() -> None:
    """They are compared on the same budget, or the difference is of that."""
    before, changed = PROFILES["demo/objectives"], {"learning_rate": 1e-3, "group_size": 16, "token_budget": 900}
    after = overridden(before, [f"training.{name}={value}" for name, value in changed.items()])
    for training in (after.training, *(one.training for one in after.objectives)):
        assert {name: getattr(training, name) for name in changed} == changed
    kept = [(o.name, o.training.advantage, o.training.loss, o.training.minibatches) for o in before.objectives]
    assert kept == [(o.name, o.training.advantage, o.training.loss, o.training.minibatches) for o in after.objectives]


def test_reward_models_and_judges_are_named_by_their_content(tmp_path: Path) -> None:
    """A copy is the same one, other weights are another; methods that need no reward model keep their names."""
    store, searches, trainings = Store(tmp_path / "store"), list[dict[str, str]](), list[str]()
    store.prepare()
    folder = write_tiny_model(tmp_path / "one", labels=1)
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    for place in (folder, copy, write_tiny_model(tmp_path / "other", labels=2)):
        planned = plan(asked(place).study(store), store)
        searches.append({p.step.title: str(p.step.ref) for p in planned if p.step.ref.kind == "searches"})
        terms = ("training.rewards.correct.weight=1", f"training.rewards.judge.model={place}")
        judged = Request(profile="demo", settings=("arms=panel", "seeds=0", *terms)).study(store)
        trainings += [str(p.step.ref) for p in plan(judged, store) if p.step.ref.kind == "training"]
    assert searches[0] == searches[1] and trainings[0] == trainings[1] != trainings[2]
    same = {title for title in searches[0] if searches[0][title] == searches[2][title]}
    assert {t for t in searches[0] if "by=process" in t or "rewarded" in t} == set(searches[0]) - same
    assert any("majority" in title for title in same)


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


def test_objectives_that_train_alike_are_named() -> None:
    """With one update a batch of fresh rollouts a clipped ratio is 1; with two, or another divisor's weights, it counts."""
    assert [alike(profile) for profile in PROFILES.values()] == [[]] * len(PROFILES)
    head, text = (
        'base = "demo"\n',
        '[objectives.clipped]\nloss = "ppo"\nclip_low = 0.1\n[objectives.means]\nloss = "gspo"\n',
    )
    [sentence] = alike(profile_of("mine.toml", head + text))
    assert sentence.startswith("objectives 'as the study has it', 'clipped' train alike")
    assert not alike(profile_of("mine.toml", head + "[training]\nepochs = 2\n" + text))


def test_a_study_is_described_by_its_own_numbers(tmp_path: Path) -> None:
    """A report of 6 steps once had the profile's words below its title: "two arms, 40 steps"."""
    study = Request(profile="demo", settings=("training.steps=6", "seeds=[0,1]")).study(Store(tmp_path), planning=True)
    assert "6 steps of training under 2 seeds" in study.in_numbers
