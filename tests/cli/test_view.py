"""Words that a shell completes, and what a run shows while it goes on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.view import Watch, answer_in_words, glimpse
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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("varband re", {"report", "resume", "replay"}),
        ("varband run qwen-1.5b/o", {"qwen-1.5b/objectives"}),
        ("varband plan min", {"mine.toml"}),
        ("varband resume mi", {"mine-00000000"}),
        ("varband report --against mi", {"mine-00000000"}),
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
