"""First minutes: what to do next, words that a shell completes, and what a run shows while it goes on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.glimpses import answer_in_words, glimpse
from cli.next_steps import next_steps
from cli.view import Watch
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.records.runs import Run, now, write_run
from tasks.stage import Progress
from tests import warm

OF_ARMS = ("trained_as", "model", "adapter")


def run_of(root: Path, name: str, **more: object) -> Run:
    told = {
        "id": f"{name}-00000000",
        "profile": name,
        "request": {},
        "state": "finished",
        "report": f"report-{'0' * 16}",
    }
    told |= {"started": now(), "heartbeat": now(), "host": "elsewhere", "pid": 1, **more}
    write_run(root, run := Run.model_validate(told))
    return run


def said(*words: str, root: Path, **environment: str) -> str:
    told = {**warm.SHELL, "VARBAND_ROOT": str(root), **environment}
    done = warm.run([warm.VARBAND, *words], env=told, cwd=root.parent)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    return done.stdout


def test_without_a_root_it_says_how_to_begin_and_makes_none(tmp_path: Path) -> None:
    told = said(root=tmp_path / "store")
    assert "varband run demo" in told and "varband study new" in told and not [*tmp_path.iterdir()]


@pytest.mark.parametrize("state", ["parked", "interrupted", "failed", "crashed"])
def test_what_stopped_comes_first_with_why_and_how_to_go_on(state: str, tmp_path: Path) -> None:
    run_of(tmp_path, "done")
    stopped = run_of(tmp_path, "mine", state=state, why="the money is spent", report=None)
    told = list(next_steps(tmp_path))
    assert told[:2] == [
        f"{stopped.id} is {state}: the money is spent; {'once that is mended ' * (state == 'failed')}it goes on with",
        f"  varband resume {stopped.id}",
    ]
    assert "  varband report done-00000000" in told


def test_what_met_its_budget_goes_on_with_more_of_it(tmp_path: Path) -> None:
    """With the same budget it would meet the same wall."""
    why = "parked: the budget of 9,000 tokens is spent; about 100 more; `varband resume mine-00000000 --budget tokens=1e4`"
    run_of(tmp_path, "mine", state="parked", why=f"{why} or the same command with that budget goes on", report=None)
    assert list(next_steps(tmp_path))[:2] == [
        "mine-00000000 is parked: the budget of 9,000 tokens is spent; about 100 more; it goes on with",
        "  varband resume mine-00000000 --budget tokens=1e4",
    ]


def test_a_run_at_work_and_two_to_compare(tmp_path: Path) -> None:
    older = run_of(tmp_path, "older", started="2026-01-01T00:00:00+00:00")
    newer = run_of(tmp_path, "newer", started="2026-02-01T00:00:00+00:00", report=f"report-{'1' * 16}")
    run_of(tmp_path, "busy", state="running", at="screen panel", stages=55, stages_done=3)
    told = list(next_steps(tmp_path))
    assert told[0] == "busy-00000000 is at work: screen panel, 3 of 55 stages; watch it with"
    assert f"  varband compare {older.id} {newer.id}" in told


def test_every_command_that_it_names_exists(tmp_path: Path) -> None:
    from cli.main import COMMANDS

    run_of(tmp_path, "mine", state="parked")
    lines = [*next_steps(tmp_path / "none"), *next_steps(tmp_path)]
    named = {word for line in lines for word in re.findall(r"varband ([a-z]+)", line)}
    assert named and named <= COMMANDS.keys()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("varband comp", {"compare", "completion"}),
        ("varband run qwen-1.5b/o", {"qwen-1.5b/objectives"}),
        ("varband plan min", {"mine.toml"}),
        ("varband resume mi", {"mine-00000000"}),
        ("varband compare mine-00000000 mi", {"mine-00000000"}),
        ("varband plan demo --se", {"--seeds", "--set"}),
        ("varband run demo --set training.lora", {"training.lora_rank=", "training.lora_alpha="}),
        (
            "varband plan demo --arms panel --set arms.",
            {f"arms.{arm}.{of}=" for arm in ("panel", "thinking") for of in OF_ARMS},
        ),
        (
            "varband run mine.toml/cold --set lessons.gsm8k.pool.l",
            {f"lessons.gsm8k.pool.l{of}=" for of in ("evels", "imit")},
        ),
    ],
)
def test_a_shell_completes_commands_studies_and_runs(words: str, expected: set[str], tmp_path: Path) -> None:
    (root := tmp_path / "store").mkdir()
    run_of(root, "mine")
    (tmp_path / "mine.toml").write_text('base = "qwen-1.5b/chain"\n[questions.cold]\nrollouts.temperature = 0.5\n')
    place = str(len(words.split()) - 1)
    told = said(root=root, COMP_WORDS=words, COMP_CWORD=place, _VARBAND_COMPLETE="bash_complete")
    assert {line.partition(",")[2] for line in told.splitlines()} == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_once(shell: str, tmp_path: Path) -> None:
    assert "_VARBAND_COMPLETE" in said("completion", shell, root=tmp_path)


def test_bands_and_a_trace_are_shown_as_they_come(demo_store: Path) -> None:
    store = Store(demo_store)
    bands = store.refs("bands")[0]
    drawn = list(glimpse(store, bands))
    counts = [int(re.search(r"(\d+)(  |$)", line)[1]) for line in drawn]  # type: ignore[index]
    assert sum(counts) == store.manifest(bands).rows and "a gradient" in drawn[1]
    [trace] = glimpse(store, store.refs("rollouts")[0])
    assert trace.endswith("→ correct") and "<" in trace
    [problem] = glimpse(store, store.refs("pool")[0])
    assert re.fullmatch(r"the first of them: .+  → \S+", problem)
    assert not list(glimpse(store, store.refs("splits")[0]))


def test_the_answer_in_words_is_the_reports(demo_store: Path) -> None:
    store = Store(demo_store)
    [report] = store.refs("report")
    page = re.sub(r"\\|&lt;|<", "", (store.files(report) / "report.md").read_text())
    told = answer_in_words(demo_store, Ref.parse(str(report)))
    assert len(told) > 3 and all(re.sub(r"\\|<", "", sentence) in page for sentence in told)


def test_a_pipe_is_shown_a_trace_and_bands_before_a_screening_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    """Once what begins a screening, and not at every batch; of what is no screening no trace and no bands."""
    screened, evaluated = (Ref("rollouts", digit * 16) for digit in "01")
    with Watch("demo", (), as_json=False) as watch:
        for title, ref in (("screen panel", screened), ("evaluate panel at step 0", evaluated)):
            watch.on_progress(Progress("started", title, ref))
            for done in (256, 512):
                watch.on_progress(Progress("seen", title, ref, detail=f"panel: so {done}  → correct"))
                watch.on_progress(Progress("advanced", title, ref, done, 1600, "rollouts", bands=(2, 28, 2)))
    assert capsys.readouterr().out.splitlines()[1:] == [
        "    panel: so 256  → correct",
        "  screen panel: 256 of 1,600 rollouts; 2 all_zero, 28 variance, 2 all_one",
        "  evaluate panel at step 0: 256 of 1,600 rollouts",
    ]


def test_a_terminal_is_drawn_the_bands_so_far() -> None:
    with Watch("demo", (), as_json=False) as watch:
        ref = Ref("rollouts", "0" * 16)
        watch.on_progress(Progress("started", "screen panel", ref))
        watch.on_progress(Progress("advanced", "screen panel", ref, 256, 1600, "rollouts", bands=(0, 30, 2)))
        with watch.console.capture() as drawn:
            watch.console.print(watch._at_work())
        assert re.search(
            r"screen panel, so far\n.*all_zero +0\n.*variance +█+ +30 .*wrong\n.*all_one +█+ +2\n", drawn.get()
        )
        watch.on_progress(Progress("made", "screen panel", ref, 1600, 1600))
        assert not watch._screened
