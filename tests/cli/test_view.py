"""Words that a shell completes, and what a run shows while it goes on."""

import html
import time
from pathlib import Path

import pytest

import cli.view
from cli.view import Watch, level_lines
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.reading.recorded import first_screen
from tasks.stage import Progress
from tests import warm
from tests.storage.records.test_garbage import recorded


def said(*words: str, root: Path, **environment: str) -> str:
    told = {**warm.SHELL, "VARBAND_ROOT": str(root), **environment}
    done = warm.run([warm.VARBAND, *words], env=told, cwd=root.parent)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("varband re", {"report", "resume", "replay"}),
        ("varband plan min", {"mine.toml"}),
        ("varband resume mi", {"mine-00000000"}),
    ],
)
def test_a_shell_completes_commands_studies_and_runs(words: str, expected: set[str], tmp_path: Path) -> None:
    (root := tmp_path / "store").mkdir()
    recorded(root, name="mine-00000000", profile="mine")
    (tmp_path / "mine.toml").write_text('base = "qwen-1.5b/chain"\n[questions.cold]\nrollouts.temperature = 0.5\n')
    place = str(len(words.split()) - 1)
    told = said(root=root, COMP_WORDS=words, COMP_CWORD=place, _VARBAND_COMPLETE="bash_complete")
    assert {line.partition(",")[2] for line in told.splitlines()} == expected


def test_the_first_screen_is_that_of_the_report(demo_store: Path) -> None:
    """By hand: 68.8 % of 33 columns is place 22, 75 % place 24."""
    store = Store(demo_store)
    [report] = store.refs("report")
    first = first_screen(demo_store, str(report))
    assert html.escape(first["verdict"]) in (store.files(report) / "report.html").read_text()
    assert len(first["verdict"].split()) <= 25
    lines = list(level_lines(store, report))
    assert lines[0] == f"{'panel':16} {'·' * 22}o─●{'·' * 8}  75.0 %   +6.25 points"
    assert len(lines) == 2 and all(len(line) <= 80 for line in lines)


def test_a_pipe_shows_the_wait_for_an_engine_and_a_training_by_its_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli.view, "PIPED_SECONDS", 0.02)
    ref = Ref("training", "0" * 16)
    with Watch() as watch:
        watch.on_progress(Progress("started", "train panel", ref))
        time.sleep(0.2)
        watch.on_progress(Progress("advanced", "train panel", ref, 1, 4, "steps", detail="reward 0.50"))
        time.sleep(0.05)
        watch.on_progress(Progress("advanced", "train panel", ref, 9, 16, "rollouts"))
        watch.on_progress(Progress("advanced", "train panel", ref, 4, 4, "steps", detail="reward 0.75"))
        time.sleep(0.05)
        watch.on_progress(Progress("advanced", "train panel", ref, 8, 8, "rollouts", detail="3 correct"))
    *waiting, step, rollouts, last, evaluation = capsys.readouterr().out.splitlines()
    assert waiting and {*waiting} == {"  train panel: waiting for the engine, 0 s"}
    assert step == "  train panel: step 1 of 4 · reward 0.50"
    assert rollouts == "  train panel: step 2 of 4 · 9 of 16 rollouts"
    assert last == "  train panel: step 4 of 4 · reward 0.75"
    assert evaluation == "  train panel: evaluation · 8 of 8 rollouts · 3 correct"
