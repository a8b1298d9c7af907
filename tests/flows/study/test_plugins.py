"""What another package brings, installed for real: it judges, writes and weighs, its version is in every name, and
where it is not there one sentence says so."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flows.study.files import written_out
from flows.study.request import profile_of
from flows.study.settings import overridden
from storage.errors import UserError
from tasks.domain.grading.kinds import faults_of_answer
from tasks.domain.grpo.losses import divisor, loss_for
from tasks.domain.grpo.rewards import scored
from tasks.domain.policies import BaseModel, Policy
from tasks.domain.scaffolds import PANEL
from tasks.engines.grading.graders import GradeItem, Graders
from tasks.grading import by_grader
from tests.flows.study.test_files import planned
from tests.plugged import install

MODEL = BaseModel(name="m", sha256="0" * 64)
MINE = """
base = "demo"
arms = ["panel", "hours"]
[scaffolds.hours]
base = "panel"
answer_kind = "clock"
"""
WRITTEN = """
base = "demo"
arms = ["backwards"]
[scaffolds.backwards]
code = "reversed"
[training]
advantage = "from_middle"
"""


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {version: install(tmp_path_factory.mktemp("plugged"), version) for version in ("1.0", "2.0")}


@pytest.fixture
def installed(versions: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, versions["1.0"])


def on_path(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.syspath_prepend(str(folder))
    patch.setenv("PYTHONPATH", str(folder))


@pytest.fixture
def graders() -> Iterator[Graders]:
    with Graders() as made:
        yield made


@pytest.mark.usefixtures("installed")
def test_a_grader_judges_in_a_process_that_can_be_killed(graders: Graders) -> None:
    hours = profile_of("mine.toml", MINE).arm("hours").scaffold
    assert hours.answer_kind == "clock@lab-tasks==1.0"
    said = ["13", "2", "noon", "fall", "hang", "1"]
    verdicts = graders.grade([GradeItem(hours, hours.answer_in_form(answer), "1") for answer in said])
    assert [v.verdict for v in verdicts] == ["correct", "wrong", "wrong", "ungradable", "timeout", "correct"]
    assert verdicts[0].canonical == "13" and "ValueError: no hour" in verdicts[3].reason
    assert by_grader(graders, hours.answer_kind)([("13", "25"), ("13", "2")]) == [True, False]


@pytest.mark.usefixtures("installed")
def test_a_scaffold_in_code_writes_its_prompt_and_reads_its_completions(graders: Graders) -> None:
    study = profile_of("mine.toml", WRITTEN)
    scaffold = study.arm("backwards").scaffold
    assert scaffold.code == "reversed@lab-tasks==1.0" and scaffold.stop == ("!",)
    assert scaffold.prompt_text("one two").startswith("two one <work>")
    assert scaffold.parse("so => 7").region == "7" and scaffold.parse("so 7").region is None
    assert graders.grade([GradeItem(scaffold, "so => 7", "7"), GradeItem(scaffold, "7", "7")])[0].correct


@pytest.mark.usefixtures("installed")
def test_a_loss_is_tried_and_its_version_is_in_the_recipe() -> None:
    text = 'base = "demo"\narms = ["panel"]\n[training]\nclip_low = 0.1\nloss = '
    learner = profile_of("mine.toml", text + '"doubled"').training
    assert dict(learner.versions()) == {"doubled": "lab-tasks==1.0"}
    assert divisor(loss_for(learner), learner, tokens=50, rollouts=4) == 50
    for name, fault in {"undeclared": r"declare Loss\(..., reinforces=False\)", "scalar": "one finite term"}.items():
        with pytest.raises(UserError, match=f"line 5: training.loss: loss {name}.*{fault}"):
            profile_of("mine.toml", f'{text}"{name}"')


BRIEF = """
base = "demo"
arms = ["panel"]
[training]
rewards = [{name = "correct"}, {name = "concise", weight = 0.1}]
"""


@pytest.mark.usefixtures("installed")
def test_a_reward_is_tried_and_its_version_is_in_the_recipe() -> None:
    study = profile_of("mine.toml", BRIEF)
    assert dict(study.training.versions())["reward concise"] == "lab-tasks==1.0"
    assert profile_of("mine.toml", written_out(study)).training == study.training
    assert overridden(study, ["training.rewards.concise.weight=0.5"]).training.rewards[1].weight == 0.5
    seen = ("1+1?", "2 <answer>2</answer>", "2", "correct", 9, "stop")
    assert scored(study.training, *seen) == {"concise": 0.1}
    with pytest.raises(UserError, match=r"line 5: training\.rewards: reward endless raised ZeroDivisionError"):
        profile_of("mine.toml", BRIEF.replace("concise", "endless"))


@pytest.mark.parametrize(("text", "sampled_anew"), [(MINE, False), (WRITTEN, True)])
def test_an_upgraded_package_changes_the_names_of_what_it_makes(
    versions: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sampled_anew: bool
) -> None:
    """Not those of the others; what was sampled for a grader is judged anew by its next version, and not sampled."""
    with monkeypatch.context() as patch:
        on_path(patch, versions["1.0"])
        first, before = planned(tmp_path, text), profile_of("mine.toml", text)
        assert planned(tmp_path, text) == first
    on_path(monkeypatch, versions["2.0"])
    second, after = planned(tmp_path, text), profile_of("mine.toml", text)
    others = {ref for ref in first["training"] if "panel" in text} & second["training"]
    assert first["training"] != second["training"] and first["rollouts"] != second["rollouts"]
    assert len(others) == (1 if text is MINE else 0)
    was, now = (Policy(arm=p.arms[-1], model=MODEL, scaffold=p.arm(p.arms[-1]).scaffold) for p in (before, after))
    assert (was.identity() != now.identity()) == sampled_anew


@pytest.mark.usefixtures("installed")
def test_another_version_is_not_taken_for_the_one_that_was_meant(graders: Graders) -> None:
    """Stored rollouts of a grader that was upgraded since are judged by nobody."""
    before = replace(PANEL, answer_kind="clock@lab-tasks==0.9")
    with pytest.raises(
        UserError, match=r"clock@lab-tasks==0\.9 is not installed; the installed version is clock@lab-tasks==1\.0"
    ):
        graders.grade([GradeItem(before, before.answer_in_form("1"), "1")])


OWN = 'base = "demo"\narms = ["own"]\n[scaffolds.own]\ncode = "{}"\n'
WEIGHED = 'base = "demo"\n[training]\ngroup_size = 4\nadvantage = "{}"\n'


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (OWN, "fixed", "scaffold fixed@lab-tasks==1.0: `prompt` must return another text for each problem"),
        (OWN, "unread", "scaffold unread@lab-tasks==1.0: `parse` raises ValueError: no, given '7'"),
        (WEIGHED, "endless", "objective endless of lab-tasks==1.0 must return one finite number per rollout"),
    ],
)
def test_a_part_that_does_not_work_is_refused_with_its_line(text: str, name: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        profile_of("mine.toml", text.format(name))
    assert str(refused.value).startswith("mine.toml, line 4: ") and said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "said"),
    [("nothing", "read returned None, not a list of texts"), ("neither", "same returned 'no', neither true nor false")],
)
def test_a_grader_that_judges_nothing_is_never_taken_to_agree(name: str, said: str) -> None:
    assert said in faults_of_answer(name, "7")
