"""A study as one file: what it says is what runs, its content is its identity, and every fault has its line."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w
from pydantic import ValidationError

from flows.running.plan import plan
from flows.study.files import differences, read_study, tables_of
from flows.study.forms import PinnedForm, StudyForm
from flows.study.profile import Profile
from flows.study.profiles import BENCHMARKS, DEMO, PROFILES
from flows.study.request import Request, profile_named, profile_of
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.grading.grading import ActiveGrader, Overrides
from tests.flows.running.test_plan import study_of

MINE = '''
base = "demo"
arms = ["panel", "scratch"]

[training]
steps = 4
eval_every = 2

[scaffolds.scratch]
template = """
Work within <work>...</work>, answer within <answer>...</answer>.
{problem}
"""
trace_tag = "work"
answer_form = "tag"
stop = ["</answer>"]

[questions.cool]
purpose = "and cooler?"
rollouts.temperature = 0.7

[matrix]
rollouts.temperature = [0.5, 1.0]
screening.group_size = [4, 8]
'''


def asked(text: str, question: str = "") -> Profile:
    return profile_of(f"mine.toml/{question}".rstrip("/"), text)


def planned(tmp_path: Path, text: str, question: str = "") -> dict[str, set[str]]:
    word = f"mine.toml/{question}".rstrip("/")
    return refs_of(Request(profile=word, text=text), tmp_path)


def refs_of(request: Request, tmp_path: Path) -> dict[str, set[str]]:
    """Names of what would be made, by kind."""
    store, found = Store(tmp_path), defaultdict(set)
    for one in plan(request.study(store), store):
        found[one.step.ref.kind].add(str(one.step.ref))
    return found


@pytest.mark.parametrize("name", PROFILES)
def test_a_study_written_out_whole_is_read_back_as_it_is(name: str) -> None:
    study = PROFILES[name]
    text = tomli_w.dumps(tables_of(study), multiline_strings=True)
    read = read_study(text, name, bases=profile_named).study
    assert replace(read, name=study.name, purpose=study.purpose) == study


def test_questions_and_a_matrix_change_what_they_say_alone() -> None:
    study = asked(MINE)
    assert differences(study, asked(MINE, "cool")) == {"rollouts.temperature": (1.0, 0.7)}
    assert asked(MINE, "cool").called == "mine/cool" and asked(MINE, "cool").about == "and cooler?"
    corner = differences(study, asked(MINE, "temperature=0.5,group_size=4"))
    assert corner == {"rollouts.temperature": (1.0, 0.5), "screening.group_size": (8, 4)}
    assert asked(MINE, "seeds").seeds == (0, 1, 2), "everybody's questions are asked of it too"


def test_renaming_and_commenting_change_nothing_and_a_prompt_what_depends_on_it(tmp_path: Path) -> None:
    before = planned(tmp_path, MINE)
    assert planned(tmp_path, '# a comment\nname = "other"\npurpose = "else"\n' + MINE) == before
    after = planned(tmp_path, MINE.replace("Work within", "Reason within"))
    assert after["pool"] == before["pool"] and after["splits"] == before["splits"]
    for kind in ("rollouts", "bands", "training"):
        kept = before[kind] & after[kind]
        assert kept and len(kept) == len(before[kind]) / 2, "the panel's are those of before, the other arm's are not"
    assert not before["report"] & after["report"]


def test_a_report_is_told_what_was_run(tmp_path: Path) -> None:
    study = Request(profile="demo", settings=("training.steps=4",)).study(Store(tmp_path))
    assert study.changes == ("training.steps: 40 → 4",)
    assert study.command == "varband run demo --set training.steps=4"
    elsewhere = Request(profile="demo", settings=("training.steps=4", "hardware.threads=2")).study(Store(tmp_path))
    assert (elsewhere.changes, elsewhere.settings) == (study.changes, study.settings)  # a report is the same anywhere
    assert read_study(study.settings, "as told", bases=profile_named).study.training == study.profile.training
    panel, thinking = study.prompts
    assert panel.startswith("panel (tags mutipersonaDebate, answer; answer in its tag; stop </answer>):")
    assert "{problem}" in panel and "; chat):" in thinking
    ended = MINE.replace('stop = ["</answer>"]', r'stop = ["</answer>", "\n\tQ:"]')
    prompts = Request(profile="mine.toml", text=ended).study(Store(tmp_path), planning=True).prompts
    assert any(r"stop </answer>, '\n\tQ:'" in prompt for prompt in prompts), "what nobody sees is spelt"


def test_records_are_changed_and_added_by_name_and_chosen_by_a_list() -> None:
    study = asked('base = "qwen-1.5b"\n[lessons.gsm8k.training]\nsteps = 3\n[benchmarks.aime]\ngroup_size = 2\n')
    assert [lesson.training.steps for lesson in study.lessons] == [3]
    assert [b.group_size for b in study.benchmarks] == [*(b.group_size for b in BENCHMARKS[:2]), 2]
    assert asked('base = "demo"\nbenchmarks = ["aime"]').benchmarks == BENCHMARKS[2:]
    assert [o.name for o in asked('base = "demo"\nobjectives = ["GRPO", "MaxRL"]').objectives] == ["GRPO", "MaxRL"]
    (mine,) = asked('base = "demo"\n[objectives.mine]\nkl_weight = 0.1').objectives
    assert mine.training == replace(DEMO.training, kl_weight=0.1)


def test_paths_are_those_beside_the_file_and_two_of_one_name_are_no_one_source(tmp_path: Path) -> None:
    """A split would hold out as much of both together as of one."""
    (tmp_path / "mine.jsonl").write_text("")
    text = 'base = "demo"\npool.sources = ["mine.jsonl", "aime24"]\nmodel = "./b"\nencoder.name = "a"\n'
    for folder, word in (("a", "hens"), ("b", "goats")):
        (tmp_path / folder).mkdir()
        rows = ({"problem": f"{n} {word} and {n * n} more?", "gold": "3"} for n in range(9))
        (tmp_path / folder / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    study = profile_of(str(tmp_path / "a.toml"), text)
    assert study.pool.sources == (str(tmp_path / "mine.jsonl"), "aime24")
    assert (study.model, study.encoder.name) == (str(tmp_path / "b"), "a")
    same = 'base = "demo"\n[pool]\nsources = ["a/p.jsonl", "b/p.jsonl"]\nheldout_per_source = 2\n'
    with pytest.raises(UserError, match=r"^mine\.toml, line 3: pool\.sources: several files are called p and would"):
        Request(profile=str(tmp_path / "mine.toml"), text=same).study(Store(tmp_path / "root"), planning=True)


# Forms: what a run was asked for reaches whoever works on it, however late.


ASKED = Overrides((("2\\sqrt{3}", "x", "wrong", "“no”"), ("six", "6", "correct", "spelt out")))
SINCE = Overrides((("six", "6", "wrong", "no digit"),))


def test_an_arm_elsewhere_is_judged_as_its_run_was_asked_for(tmp_path: Path) -> None:
    """The worker resolves the study when its turn comes, and finds what was overridden since."""
    study = study_of(DEMO, tmp_path)
    for asked in (ASKED, Overrides()):
        run = replace(study, grader=ActiveGrader(overrides=asked))
        sent = PinnedForm.of(StudyForm(limit=3), run).model_dump_json()
        received = PinnedForm.model_validate_json(sent)
        assert received.pinned(replace(study, grader=ActiveGrader(overrides=SINCE))).grader == run.grader
        assert received.request() == StudyForm(limit=3).request()


@pytest.mark.parametrize(
    ("text", "named", "question", "called"),
    [
        ('base = "demo"\n', "mine", "seeds", "mine/seeds"),
        ('base = "demo"\nname = "own"\n', "", "seeds", "own/seeds"),
        (f'base = "demo"\n[encoder]\nname = "owner/encoder@{"0" * 40}"\n', "mine", "", "mine"),
    ],
)
def test_the_text_of_a_file_is_called_as_it_says_or_as_the_form_says(
    text: str, named: str, question: str, called: str, tmp_path: Path
) -> None:
    form = StudyForm(file=text, name=named, question=question)
    assert form.request().study(Store(tmp_path), planning=True).profile.called == called


def test_a_form_refuses_a_name_that_is_none(tmp_path: Path) -> None:
    for name in ("a/b", "demo"):
        with pytest.raises((UserError, ValidationError), match="name"):
            StudyForm(file='base = "demo"\n', name=name).request().study(Store(tmp_path), planning=True)
