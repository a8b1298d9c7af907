"""A prompt that shows a problem of its study, with its gold: refused for all arms before any of them samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows import shown
from flows.problems import prepare
from flows.running.plan import execute, plan
from flows.running.sessions import unheard
from flows.study.request import Request
from flows.study.resolve import Study
from storage.artifacts.store import Store
from storage.errors import UserError

TEMPLATE = "{problem} <w>...</w> <answer>...</answer>"
PROBLEMS = [f"A hen lays {n} eggs on each of {n + 1} days. How many?" for n in range(2, 9)]
ASKED = PROBLEMS[3]


def study_text(shown: str) -> str:
    """Of two arms, the second of which shows something."""
    return (
        f'base = "demo"\narms = ["panel", "own"]\n[pool]\nsources = ["mine.jsonl"]\nheldout_per_source = 2\n[scaffolds.own]\ntrace_tag = "w"\n'
        f'answer_form = "tag"\n{shown}\n'
    )


def template(words: str) -> str:
    return f"template = {json.dumps(f'{words} {TEMPLATE}')}"


def example(problem: str = "1 + 1?", trace: str = "so", answer: str = "2") -> str:
    told = json.dumps(problem), json.dumps(trace), json.dumps(answer)
    return "{}\nexamples = [{{ problem = {}, trace = {}, answer = {} }}]".format(template(""), *told)


def write(folder: Path, problems: list[str], name: str = "mine.jsonl") -> None:
    rows = ({"problem": problem, "gold": str(n), "level": 1 + n % 2} for n, problem in enumerate(problems))
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def asked(folder: Path, text: str) -> tuple[Study, Store]:
    store = Store(folder / "root")
    return Request(profile=str(folder / "study.toml"), text=text).study(store), store


SHOWN = {
    "template": template(f"Such as: {ASKED}\nThat is 30."),
    "example": example(problem=ASKED),
    "example, as LaTeX has it": example(problem=ASKED.replace("5", "$5$").replace("6", r"\(6\)")),
    "answer of an example": example(answer=f"2, and to {ASKED} 30") + '\nanswer_kind = "exact_text"',
}


@pytest.mark.parametrize("where", SHOWN)
def test_a_plan_says_it_where_the_problems_are_at_hand(where: str, tmp_path: Path) -> None:
    write(tmp_path, PROBLEMS)
    with pytest.raises(UserError, match=r"scaffold own: its (text|example) shows 'A hen lays 5 eggs") as raised:
        plan(*asked(tmp_path, study_text(SHOWN[where])))
    assert "\n" not in str(raised.value) and not (tmp_path / "root").exists()


def test_a_run_is_refused_when_its_pool_is_there_and_nothing_is_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files that are elsewhere a plan knows nothing until the pool is made."""
    write(tmp_path, PROBLEMS)
    study, store = asked(tmp_path, study_text(template(PROBLEMS[4])))
    monkeypatch.setattr(shown, "problems_before_checks", lambda *_: None)
    assert plan(study, store)
    for verb in (
        lambda: execute(study, store, unheard),
        lambda: plan(study, store),
        lambda: plan(study, store, prepare),
    ):
        with pytest.raises(UserError, match="scaffold own: its text shows 'A hen lays 6 eggs"):
            verb()
    assert {ref.kind for ref in store.refs()} == {"pool", "splits"}
