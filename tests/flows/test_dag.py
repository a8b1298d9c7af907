"""The DAG hands values down: what planning a study calls, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from flows.experiment import experiment
from flows.study.profile import Profile
from flows.study.profiles import DEMO, PAPER, PROFILES
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.policies import BaseModel
from tasks.engines.toolbox import Toolbox
from tasks.stage import Session, Step, session
from tests.flows.running.test_plan import study_of

REPO = Path(__file__).resolve().parents[2]
#: Studies that somebody asks for with `--set`: what they ask for twice is one artifact all the same.
NEIGHBOURS = {
    "evaluated as finally": replace(PAPER, evaluation=PAPER.final),
    "all three alike": replace(PAPER, evaluation=PAPER.final, asymptote=PAPER.final.group_size),
    "taught on what is studied": replace(PAPER, lessons=tuple(replace(x, pool=PAPER.pool) for x in PAPER.lessons)),
    "two lessons of one pool": replace(
        PAPER, lessons=tuple(replace(x, pool=PAPER.lessons[0].pool) for x in PAPER.lessons)
    ),
    "taught on what was made up": replace(DEMO, lessons=(replace(PAPER.lessons[0], pool=DEMO.pool),)),
    "joint, with controls": replace(PROFILES["paper/controls"], train_on="joint", seeds=(0, 1)),
    "one that is served alone": replace(PAPER, arms=("no_panel",), asymptote=64),
    "adaptive": replace(PAPER, screening=replace(PAPER.screening, adaptive=True)),
    "a benchmark twice": replace(PAPER, benchmarks=(*PAPER.benchmarks, replace(PAPER.benchmarks[0], name="again"))),
}


def planned(tmp_path: Path, profile: Profile) -> list[Step]:
    planning = Session(Store(tmp_path), Toolbox(), planning=True)
    with session(planning):
        experiment(study_of(profile, tmp_path))
    return planning.steps


@pytest.mark.parametrize(
    ("advantage", "given"),
    [
        ("centred", set()),
        ("vpo", {"second"}),
        ("refined", {"second", "context"}),
        ("multi_agent", {"second", "context"}),
        ("darling_encoded", {"calibration"}),
    ],
)
def test_a_lesson_has_what_its_objective_needs(tmp_path: Path, advantage: str, given: set[str]) -> None:
    """As the studied training has."""
    lesson = replace(PAPER.lessons[0], pool=DEMO.pool, arms=("panel",))
    taught = replace(lesson, training=replace(lesson.training, advantage=advantage))
    training = replace(DEMO.training, advantage=advantage)
    steps = planned(tmp_path, replace(DEMO, arms=("panel",), lessons=(taught,), training=training))
    trainings = [step.arguments for step in steps if step.ref.kind == "training"]
    assert len(trainings) == 2
    for asked in trainings:
        assert {name for name in ("second", "calibration", "context") if asked.get(name) is not None} == given


@pytest.mark.parametrize(
    "profile", [pytest.param(profile, id=name) for name, profile in (*PROFILES.items(), *NEIGHBOURS.items())]
)
def test_every_artifact_is_asked_for_once(tmp_path: Path, profile: Profile) -> None:
    """Step 0 alone is shared: seeds of one arm, and arms of one prompt, start from the same policy."""
    calls = Counter((step.ref, step.title) for step in planned(tmp_path, profile))
    asked = Counter(ref for ref, _ in calls.elements())
    again = {title: asked[ref] for ref, title in calls if asked[ref] > 1}
    assert not again


def test_an_adapter_of_another_base_is_refused(tmp_path: Path) -> None:
    """Before anything is made, and again where it would be served."""
    study = study_of(replace(PAPER, arms=("panel", "no_panel"), lessons=()), tmp_path)
    other = replace(study, models=study.models | {"no_panel": BaseModel(name="another", sha256="f" * 64)})
    planning = Session(Store(tmp_path), Toolbox(), planning=True)
    message = "arm no_panel has the base model another .*, but the adapter of panel was trained on a model"
    with session(planning), pytest.raises(UserError, match=message):
        experiment(other)
    assert not [step for step in planning.steps if step.title.startswith(("screen", "evaluate", "train"))]
    with session(planning):
        experiment(replace(other, profile=replace(other.profile, seeds=())))  # without an adapter every base will do


def test_an_arm_evaluated_with_anothers_adapter_receives_its_training(tmp_path: Path) -> None:
    steps = planned(tmp_path, PROFILES["paper/controls"])
    trainings = [step for step in steps if step.title == "train panel seed 0"]
    assert len(trainings) == 1
    served = {step.arguments["training"] for step in steps if step.title.startswith("evaluate no_panel at step 1")}
    assert served == {trainings[0].ref}


@pytest.mark.parametrize("chosen", [("tokens", "votes"), ("tokens", "diversity"), ("widths",), ()])
def test_a_study_that_asks_for_no_diversity_embeds_nothing(tmp_path: Path, chosen: tuple[str, ...]) -> None:
    kinds = {step.ref.kind for step in planned(tmp_path, replace(PAPER, measures=chosen))}
    asks = chosen != ("tokens", "votes")
    assert ({"embeddings", "calibrations", "diversity"} <= kinds) == asks
    assert asks or not {"embeddings", "calibrations", "diversity"} & kinds
