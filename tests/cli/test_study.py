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
