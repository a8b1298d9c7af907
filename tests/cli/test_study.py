"""`varband study` in a terminal, and the page that teaches it: each of its commands, as written."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from tasks.domain.scaffolds import SCAFFOLDS
from tests import warm

REPO = Path(__file__).resolve().parents[2]
PAGE = (REPO / "docs" / "studies.md").read_text()


def varband(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return warm.run([warm.VARBAND, *words], cwd=folder)


@pytest.mark.slow
def test_the_page_runs_as_it_is_written(tmp_path: Path) -> None:
    """Commands in their order, in one folder; a file that the page shows is written where its first line says. What
    runs a whole study or needs a server is not run: both are planned or refused in a sentence."""
    for language, text in re.findall(r"```(toml|sh)\n(.*?)```", PAGE, re.DOTALL):
        if language == "toml":
            (tmp_path / text.split("\n")[0].removeprefix("# ")).write_text(text)
            continue
        for line in text.strip().split("\n"):
            name, *words = shlex.split(line, comments=True)
            assert name == "varband"
            words = ["plan" if word == "run" else word for word in words]
            done = varband(tmp_path, *words)
            expected = 2 if words[0] == "server" else 0
            assert done.returncode == expected, (line, done.stderr)
            assert "Traceback" not in done.stderr
    assert (tmp_path / "fewshot.toml").exists() and (tmp_path / "first.toml").exists()


def test_a_study_is_begun_checked_and_compared(tmp_path: Path) -> None:
    assert "wrote first.toml" in varband(tmp_path, "study", "new", "first").stdout
    again = varband(tmp_path, "study", "new", "first")
    assert again.returncode == 2 and "exists already" in again.stderr
    begun = tomllib.loads((tmp_path / "first.toml").read_text())["scaffolds"]["scratchpad"]
    assert begun["template"] == SCAFFOLDS["think_tags"].template, "the demo's model knows no other, and the gate closes"
    assert "first: in order; arms panel, scratchpad" in varband(tmp_path, "study", "check", "first.toml").stdout
    assert (
        varband(tmp_path, "study", "diff", "first.toml", "first.toml/cooler").stdout
        == "rollouts.temperature: 1.0 → 0.7\n"
    )
    (tmp_path / "whole.toml").write_text(varband(tmp_path, "study", "show", "first.toml").stdout)
    assert "have equal settings" in varband(tmp_path, "study", "diff", "first.toml", "whole.toml").stdout


def test_each_arms_prompt_is_printed_as_its_model_gets_it(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('base = "demo"\narms = ["panel", "thinking"]\n')
    shown = varband(tmp_path, "study", "prompt", "mine.toml", "--problem", "synthetic_chains-7-1").stdout
    assert re.search(r"panel: \d+ tokens\nA conversation between", shown)
    assert "[tags mutipersonaDebate, answer; answer form tag; stop '</answer>']" in shown
    assert "<|im_start|>user\n" in shown and not list(tmp_path.glob("*/"))
    assert "no problem 'none'" in varband(tmp_path, "study", "prompt", "mine.toml", "--problem", "none").stderr


@pytest.mark.parametrize("verb", ["study check", "plan", "run", "server deploy"])
def test_a_file_with_mistakes_makes_nothing_whoever_reads_it(verb: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('base = "demo"\n[training]\nstep = 3\n')
    done = varband(tmp_path, *verb.split(), "bad.toml")
    assert done.returncode == 2
    assert done.stderr.startswith("varband: bad.toml, line 3: training.step: no field 'step'; did you mean 'steps'?")
    assert not (tmp_path / ".varband").exists()


def test_a_file_that_is_not_there_says_how_to_write_one(tmp_path: Path) -> None:
    assert "varband study new mine" in varband(tmp_path, "plan", "mine.toml").stderr


MISSING = {
    "pool.sources": '[pool]\nsources = ["pol.jsonl"]\n',
    "pool.synthetic": '[pool]\nsynthetic = 9\nheldout_per_source = 2\n[scaffolds.lettered]\nbase = "panel"\n'
    'answer_kind = "multiple_choice"\n[arms.lettered]\n',
    "benchmarks.own.sources": '[benchmarks.own]\nsources = ["amcc"]\ngroup_size = 2\n',
    "questions.more": '[questions.more]\npool.sources = ["pol.jsonl"]\n',
}


CASES = [*(("study check", field) for field in MISSING), ("plan", "questions.more")]


@pytest.mark.parametrize(("verb", "field"), CASES)
def test_what_a_file_names_and_is_not_there_has_its_line_whoever_reads_it(
    verb: str, field: str, tmp_path: Path
) -> None:
    """Line 3 of the file in every case, but for that of the question's, whose file is sound where it is not asked."""
    (tmp_path / "pool.jsonl").write_text('{"problem": "1 + 1?", "gold": "2"}\n')
    (tmp_path / "mine.toml").write_text(f'base = "demo"\n{MISSING[field]}')
    asked = field.startswith("questions") and verb != "study check"
    done = varband(tmp_path, *verb.split(), "mine.toml/more" if asked else "mine.toml")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    where = "pool.sources" if field.startswith("questions") else field
    assert done.stderr.startswith(f"varband: mine.toml, line 3: {where}: "), done.stderr
    assert not (tmp_path / ".varband").exists()


def test_a_check_says_what_a_run_would_ask_for(tmp_path: Path) -> None:
    """A plan does without it, so that the file is in order."""
    (tmp_path / "mine.toml").write_text('base = "demo"\nmodel = "dmo"\n[encoder]\nname = "./nowhere"\n')
    done = varband(tmp_path, "study", "check", "mine.toml")
    assert done.returncode == 0 and "mine: in order" in done.stdout
    assert "  mine.toml, line 2: model: base model dmo is not there" in done.stdout and "mean 'demo'?" in done.stdout
    assert "  mine.toml, line 4: encoder.name: encoder ./nowhere is not there" in done.stdout
    assert varband(tmp_path, "run", "mine.toml").stderr.startswith("varband: mine.toml, line 2: model: base model dmo")
