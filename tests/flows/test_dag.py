"""The DAG hands values down: what planning a study calls, counted."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from flows.artifacts import Screened, Start
from flows.experiment import experiment
from flows.gate import ADVICE, why_closed
from flows.running.pieces import Piece, dispatch
from flows.study.profile import Profile
from flows.study.profiles import DEMO, PAPER, PROFILES
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import Bands, Rollouts, Splits
from storage.artifacts.store import Store
from storage.errors import ArmsFailed, Parked, UserError
from tasks.domain.gate import Gate
from tasks.domain.policies import Policy
from tasks.engines.toolbox import Toolbox
from tasks.measures.bands import bands_of
from tasks.stage import Session, Step, session
from tests.dashboards.synthetic import put
from tests.flows.running.test_plan import MODEL, study_of
from tests.measures.conftest import rows_of

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


# A piece that fails is reported at once, and the others go on.


class Fake:
    """Workers whose pieces end at once, in the order in which they were begun."""

    def __init__(self, errors: dict[str, UserError]) -> None:
        self.errors, self.begun, self.under_way = errors, list[str](), list[Piece]()

    def begin(self, piece: Piece) -> None:
        self.begun.append(piece.name)
        self.under_way.append(piece)

    def ended(self) -> Iterator[tuple[Piece, UserError | None]]:
        ended, self.under_way = self.under_way, []
        return iter([(piece, self.errors.get(piece.name)) for piece in ended])


@pytest.mark.parametrize(
    ("error", "raised", "begun"), [(UserError("no"), ArmsFailed, "a b b2"), (Parked("no"), Parked, "a b")]
)
def test_pieces_of_which_one_fails(error: UserError, raised: type[Exception], begun: str) -> None:
    """A budget limit ends them all; what waits for a piece that failed is never begun."""
    workers, told, after = Fake({"a": error}), list[str](), {"a": "a2", "b": "b2"}

    pieces = {name: Piece(Ref("toy", name[::-1].rjust(16, "0")), name) for name in ("a", "b", "a2", "b2")}

    def wanted(done: set[str]) -> list[Piece]:
        names = [*after, *(after[name] for name in after if pieces[name].key in done)]
        return [pieces[name] for name in names if pieces[name].key not in done]

    with pytest.raises(raised, match="no"):
        dispatch(wanted, workers, told.append)
    assert workers.begun == begun.split()
    assert type(error) is Parked or told == ["a failed: no"]


# The gate: nothing is trained before every arm that trains is screened, nor where training could not teach.


TAUGHT = replace(DEMO, lessons=(replace(PAPER.lessons[0], pool=DEMO.pool),))


def screened(store: Store, arm: str, groups: dict[str, str], adapter: str | None, ending: str = "x") -> Screened:
    rows = rows_of(groups, arm=arm)
    invalid = pa.array([ending == "x"] * rows.num_rows)
    rows = rows.set_column(rows.schema.get_field_index("tag_valid"), rows.schema.field("tag_valid"), invalid)
    rows = rows.set_column(
        rows.schema.get_field_index("completion"), rows.schema.field("completion"), pa.array([ending] * rows.num_rows)
    )
    rollouts, bands = put(store, Rollouts, rows, about=arm), put(store, Bands, bands_of(rows), about=arm)
    policy = Policy(arm=arm, model=MODEL, scaffold=DEMO.arm(arm).scaffold, adapter=adapter)
    return Screened(arm, Start(policy), rollouts, bands, bands)


def test_trainings_wait_for_the_screening_of_every_arm_and_lessons_do_not(tmp_path: Path) -> None:
    steps = planned(tmp_path, TAUGHT)
    trainings = {step.title: step for step in steps if step.ref.kind == "training"}
    screens = {step.ref for step in steps if step.title in ("screen panel", "screen thinking")}
    assert len(screens) == 2
    for title in ("train panel seed 0", "train thinking seed 0"):
        assert screens <= set(trainings[title].awaited)
    assert trainings["lesson gsm8k for panel"].condition is None
    anyway = planned(tmp_path, replace(TAUGHT, gate=Gate(anyway=True)))
    assert not any(step.condition for step in anyway)
    assert [step.ref for step in anyway] == [step.ref for step in steps]  # of no name


def test_a_closed_gate_says_why_with_the_ends_of_completions(tmp_path: Path) -> None:
    study, store = study_of(DEMO, tmp_path), Store(tmp_path / "store")
    store.prepare()
    groups = {"p": "cwww", "q": "cccc", "held": "cwww"}
    rows = {"problem_id": [*groups], "source": ["amc"] * 3, "split": ["train", "train", "heldout"]}
    splits = put(store, Splits, pa.table(rows).cast(Splits.schema))
    sound = screened(store, "panel", groups, "training-1")
    assert why_closed(study, splits, [sound], store) == ""
    mute = screened(store, "thinking", groups | {"p": "wwww"}, None, "it goes\non and on")
    said = why_closed(study, splits, [sound, mute], store)
    assert "100 % of the rollouts of thinking have no valid tags (at most 50 %)" in said
    assert "no training problem of thinking gives a gradient" in said  # one that is held out is none
    assert "thinking starts without a lesson, and panel had one" in said
    assert said.count("thinking «…it goes on and on»") == 3 and said.endswith(ADVICE)
    on_all = replace(study, profile=replace(DEMO, train_on="all"))
    assert "no training problem of thinking" in why_closed(on_all, splits, [sound, mute], store)
    assert why_closed(on_all, splits, [sound], store) == ""
    strict = replace(study, profile=replace(DEMO, gate=Gate(least_accuracy=0.2, most_accuracy=0.4)))
    assert "the mean accuracy of panel is 50 % (within 20 % to 40 %)" in why_closed(strict, splits, [sound], store)


def test_what_may_not_be_made_is_not(tmp_path: Path) -> None:
    training = next(step for step in planned(tmp_path, DEMO) if step.title == "train panel seed 0")
    assert training.condition is not None
    closed = replace(training, condition=replace(training.condition, why_not=lambda store: "it teaches nothing"))
    with pytest.raises(Parked, match="it teaches nothing"):
        Session(Store(tmp_path), Toolbox()).ensure(closed)
