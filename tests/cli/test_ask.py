"""`varband ask` on real parts: the demo's model, an adapter that the demo trained, the grader."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.ask import ask as command
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.records.copies import copy_study

PROBLEM = "There are 6 boxes of 6 pens. 7 go. 3 come. How many pens in all?"


def ask(*words: str, typed: str | None = None, engine: str = "transformers") -> Result:
    return CliRunner().invoke(command, [*words, "--engine", engine], input=typed, catch_exceptions=False)


def told(*words: str, typed: str | None = None, engine: str = "transformers") -> list[dict[str, Any]]:
    lines = ask("--temperature", "0", *words, "--json", typed=typed, engine=engine).stdout.splitlines()
    return [json.loads(line) for line in lines]


def test_the_debate_then_the_answer_then_the_verdict() -> None:
    result = ask(PROBLEM, "--gold", "32", "--temperature", "0")
    debate, answer, verdict = result.stdout.splitlines()
    assert debate.startswith("<mutipersonaDebate>") and debate.endswith("</answer>")
    assert answer.removeprefix("answer: ") in debate
    right = answer == "answer: 32"
    assert verdict.startswith("correct: " if right else "wrong: ") and verdict.endswith("(gold 32)")
    assert "\x1b" not in result.stdout  # no colour where nobody sees it
    assert "panel · demo · no adapter" in result.stderr


def test_problems_one_after_another_as_json() -> None:
    """Whatever the model says of the first, the second's gold is its own answer, so it is correct."""
    answers = told("--arm", "thinking", typed=f"{PROBLEM}\nWhat is 2+2?\n\nnot asked\n")
    assert [set(row) for row in answers] == [{"completion", "finish", "tag_valid", "answer"}] * 2
    [again] = told(PROBLEM, "--arm", "thinking", "--gold", str(answers[0]["answer"]))
    assert again["completion"] == answers[0]["completion"] and again["verdict"] == "correct"


def test_an_adapter_is_asked_by_its_ref(demo_store: Path, tmp_path: Path) -> None:
    store = Store(demo_store)
    training = next(ref for ref in store.refs("training") if store.read(ref, ["arm"])["arm"][0].as_py() == "panel")
    result = ask(PROBLEM, "--adapter", str(training)[:16], "--root", str(demo_store))
    assert f"panel · demo · {training} step 4" in result.stderr and result.stdout.count("answer: ") == 1
    with pytest.raises(UserError, match="has no adapter at step 3"):
        ask(PROBLEM, "--adapter", str(training), "--step", "3", "--root", str(demo_store))
    copy_study(demo_store, tmp_path / "light", weights=False)
    with pytest.raises(UserError, match="its weights are not in this copy"):
        ask(PROBLEM, "--adapter", str(training), "--root", str(tmp_path / "light"))


def test_an_arm_of_a_study_file_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        'base = "demo"\narms = ["mute", "panel"]\n[scaffolds.mute]\ntemplate = "Q: {problem}"\nanswer_form = "final"\n'
    )
    assert "mute · demo · no adapter" in ask(PROBLEM, "--study", str(file), "--arm", "mute").stderr


def test_an_unknown_arm_is_refused_before_a_model_is_loaded() -> None:
    with pytest.raises(UserError, match="unknown arm 'pannel'"):
        ask(PROBLEM, "--arm", "pannel")
