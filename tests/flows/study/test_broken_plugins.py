"""What other packages bring and what does not do what it should: one sentence with its line, before anything is paid."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flows.study.request import profile_of
from storage.errors import UserError
from tasks.domain.grading.kinds import faults_of_answer

GRADERS = """
class Kind:
    def __init__(self, read, same=str.__eq__):
        self.read, self.same = read, same

def fails(*_):
    raise ValueError("no\\nhour")

fails_reading = Kind(fails)
iterates = Kind(lambda text: (part for part in text.split()))
says_none = Kind(lambda text: None)
same_is_text = Kind(str.split, lambda *_: "no")
"""
SCAFFOLDS = """
from lab.graders import fails
FIELDS = {"answer_form": "tag", "stop": ["</answer>"]}

class Own:
    fields = FIELDS
    def __init__(self, **own):
        self.__dict__.update({"prompt": lambda problem: problem + " <answer>7</answer>"} | own)

sound = Own()
prompt_raises = Own(prompt=fails)
prompt_is_fixed = Own(prompt=lambda problem: "<answer>7</answer>")
parse_raises = Own(parse=fails, solved=lambda answer, trace: answer)
solved_is_number = Own(parse=lambda text: (text, text), solved=lambda answer, trace: 7)
"""
OBJECTIVES = """
def sound(group, context):
    return [float(reward) for reward in group.rewards_G], {"largest": group.rewards_G.max()}

def no_number(group, context):
    return group.rewards_G * float("nan"), {}

def of_a_group(group):
    return group.rewards_G, {}
"""
BROUGHT = {
    "graders": "fails_reading iterates says_none same_is_text",
    "scaffolds": "sound prompt_raises prompt_is_fixed parse_raises solved_is_number",
    "objectives": "sound no_number of_a_group",
}


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution as an installer leaves it."""
    (tmp_path / "lab").mkdir()
    for name, text in {"__init__": "", "graders": GRADERS, "scaffolds": SCAFFOLDS, "objectives": OBJECTIVES}.items():
        (tmp_path / "lab" / f"{name}.py").write_text(text)
    about = tmp_path / "lab-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1.0\n")
    lines = []
    for group, names in BROUGHT.items():
        lines += [f"[varband.{group}]", *(f"{name} = lab.{group}:{name}" for name in names.split())]
    (about / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("lab", "lab.graders", "lab.scaffolds", "lab.objectives"):
        monkeypatch.delitem(sys.modules, module, raising=False)


def refused(text: str) -> str:
    with pytest.raises(UserError) as found:
        profile_of("mine.toml", text)
    assert "\n" not in str(found.value), found.value
    return str(found.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("prompt_raises", "`prompt` raises ValueError: no, given '7'"),
        ("prompt_is_fixed", "`prompt` must write each problem in its own words"),
        ("parse_raises", "`parse` raises ValueError: no, given '7'"),
        ("solved_is_number", "`solved` returned 7, which is no text"),
    ],
)
def test_a_scaffold_that_does_not_write_or_read(name: str, said: str) -> None:
    text = 'base = "demo"\narms = ["own"]\n[scaffolds.own]\ncode = "{}"\n'
    assert f"mine.toml, line 4: scaffolds.own.code: scaffold {name}@lab==1.0: {said}" in refused(text.format(name))
    assert (
        profile_of("mine.toml", text.format("sound")).arm("own").scaffold.prompt_text("1 + 1?").startswith("1 + 1? <")
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_number", "must return one finite number a rollout"),
        ("of_a_group", "raises TypeError: of_a_group() takes 1 positional argument but 2 were given"),
    ],
)
def test_an_objective_that_cannot_weigh_a_group(name: str, said: str) -> None:
    text = 'base = "demo"\n[training]\ngroup_size = 4\nadvantage = "{}"\n'
    assert f"mine.toml, line 4: training.advantage: objective {name} of lab==1.0 {said}" in refused(text.format(name))
    assert profile_of("mine.toml", text.format("sound")).training.advantage == "sound"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("iterates", ""),
        ("fails_reading", "raised by grader fails_reading: ValueError: no"),
        ("says_none", "read returned None, not a list of texts"),
        ("same_is_text", "same returned 'no', neither true nor false"),
    ],
)
def test_a_grader_that_judges_nothing_is_never_taken_to_agree(name: str, said: str) -> None:
    found = faults_of_answer(name, "7")
    assert "\n" not in found and (said in found if said else not found), found
