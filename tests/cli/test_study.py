"""`varband study` in a terminal, and the page that teaches it: each of its commands, as written."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.pool import pool
from cli.run import request_of
from cli.run import run as command_of_run
from cli.tables import MAX_ROWS
from flows.study.request import Request
from storage.artifacts.store import Store
from tasks.domain.problems.sources import SOURCES, Source
from tasks.domain.scaffolds import SCAFFOLDS
from tests import warm
from tests.warm import REPO

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
    assert "first: no mistakes; arms panel, scratchpad" in varband(tmp_path, "study", "check", "first.toml").stdout
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
    assert "problems is 'none'" in varband(tmp_path, "study", "prompt", "mine.toml", "--problem", "none").stderr


@pytest.mark.parametrize("verb", ["study check", "run", "server deploy"])
def test_a_file_with_mistakes_makes_nothing_whoever_reads_it(verb: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('base = "demo"\n[training]\nstep = 3\n')
    done = varband(tmp_path, *verb.split(), "bad.toml")
    assert done.returncode == 2
    assert done.stderr.startswith("varband: bad.toml, line 3: training.step: no field 'step'; did you mean 'steps'?")
    assert not (tmp_path / ".varband").exists()


# What people mistype on the command line: one sentence that names it, exit code 2, nothing made.


WORDS = {
    "unknown profile": (("run", "demmo"), "'demmo'"),
    "a name of TRL's": (("run", "demo", "--set", "training.num_generations=4"), "did you mean group_size?"),
    "longer than the model": (
        ("run", "demo", "--set", "hardware.max_model_len=5000"),
        "the model has only 1024 positions",
    ),
    "no such pool": (("run", "demo", "--pool", "nowhere.jsonl"), "nowhere.jsonl"),
    "no such root": (("store", "ls", "--root", "mistyped"), "mistyped: this folder does not exist"),
    "root is a file": (("run", "demo", "--root", "a_file"), "a_file"),
    "root cannot be written": (("run", "demo", "--root", "/proc/varband"), "/proc/varband"),
}


@pytest.mark.parametrize("case", WORDS)
def test_words_on_the_command_line(tmp_path: Path, case: str) -> None:
    words, named = WORDS[case]
    (tmp_path / "a_file").write_text("not a store")
    done = varband(tmp_path, *words)
    lines = [line for line in done.stderr.splitlines() if line.startswith("varband: ")]
    assert done.returncode == 2 and len(lines) == 1 and named in lines[0] and "Traceback" not in done.stderr


# What a worker writes down as the command that remakes an artifact asks for exactly the same.


def asked(*words: str) -> Request:
    with command_of_run.make_context("run", [*words]) as context:
        return request_of(**{k: v for k, v in context.params.items() if k not in ("root", "budget", "as_json")})


def test_a_request_and_its_command_are_the_same() -> None:
    settings = ("training.learning_rate=1e-3", "passk.ks=(1, 2)", "arms=panel,monologue", "seeds=0,3", "pool.limit=5")
    settings += ("pool.sources=/data/a b.jsonl,/data/c.jsonl", f"model=sha256:{'a' * 64}", "hardware.engine=vllm")
    whole = Request(profile="demo", settings=settings, data="/data", encoder="/models/e", name="mine")
    for request in (Request(profile="demo"), whole):
        name, verb, *words = shlex.split(request.command())
        assert (name, verb) == ("varband", "run") and asked(*words) == request
    short = ["--arms", "panel,monologue", "--seeds", "0,3", "--limit", "5", "--pool", "/data/a b.jsonl", "--pool"]
    short += ["/data/c.jsonl", "--model", f"sha256:{'a' * 64}", "--engine", "vllm"]
    assert {*asked("demo", *short).settings} == {*settings[2:]}
    assert asked("demo", "--seeds", "", "--anyway").settings == ("seeds=", "gate.anyway=true")


def test_a_file_of_problems_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By who reads the command in a report, and who goes on with a parked run; a set's name is no path."""
    (tmp_path / "p.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    sets = ("pool.sources=p.jsonl,amc", "arms.panel.model=./mine", "model=mine", "encoder.name=x/none", "name=p.jsonl")
    found = asked("demo", *(word for one in sets for word in ("--set", one)), "--pool", "p.jsonl", "--pool", "amc")
    there = f"pool.sources={tmp_path / 'p.jsonl'},amc"
    assert found.settings == (there, f"arms.panel.model={tmp_path / 'mine'}", *sets[2:], there)


# Sets by name: a study reads the one that it is told to, and a new one is compared with the others.


LINE = '{{"id": "{0}", "problem": "Ann holds {0} red pebbles and finds two more; how many has she?", "gold": "{0}"}}\n'


def test_a_new_set_is_compared_with_every_other_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(name: str) -> str:
        done = CliRunner().invoke(pool, [name, "--data", str(tmp_path), "--root", str(tmp_path / "store")])
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    monkeypatch.setitem(SOURCES, "pebbles", Source(name="pebbles", file="pebbles.jsonl", hub="nowhere/pebbles"))
    (tmp_path / "amc.jsonl").write_text("".join(LINE.format(i) for i in range(40, 44)))
    assert checked("amc").endswith("not compared with another set")
    (tmp_path / "pebbles.jsonl").write_text('{"id": "x", "problem": "What is the root of nine?", "gold": "3"}\n')
    assert checked("amc").endswith("no duplicates in pebbles")
    (tmp_path / "aime24.jsonl").write_text(LINE.format(40))
    assert "duplicates in other sets" in checked("amc") and "aime24" in checked("amc")


# `varband store show`, `ls`, `sql`, `report --query`: as wide as the terminal; whole and plain in a pipe; JSON for
# scripts.


def piped(*words: str, root: Path) -> subprocess.CompletedProcess[str]:
    bare = {k: v for k, v in warm.SHELL.items() if k not in ("COLUMNS", "FORCE_COLOR")}
    return warm.run([warm.VARBAND, *words, "--root", str(root)], env=bare)


@pytest.mark.parametrize(
    "words", [("store", "ls"), ("runs",), ("store", "sql", "select * from rollouts"), ("report", "--query", "gains")]
)
def test_piped_tables_are_whole_with_a_line_a_row_and_have_no_colour(demo_store: Path, words: tuple[str, ...]) -> None:
    done = piped(*words, root=demo_store)
    assert done.returncode == 0, done.stderr
    rows = json.loads(piped(*words, "--json", root=demo_store).stdout)
    *_, head, rule = done.stdout.partition("╇")[0].splitlines()  # a report's query has a title above
    lines = done.stdout.splitlines()[done.stdout.partition("╇")[0].count("\n") + 1 :]
    assert len(lines) == min(len(rows), MAX_ROWS) + (len(rows) > MAX_ROWS) > 0 and "\x1b" not in done.stdout
    assert [name.strip() for name in head.split("┃")] == list(rows[0]) and set(rule) <= {"━", "╇"}


def test_the_ends_of_completions_that_fail_are_shown(demo_store: Path) -> None:
    """Of one rollouts artifact and of a whole study; the counts are those of the rows."""
    store = Store(demo_store)
    ref = max(
        store.refs("rollouts"), key=lambda ref: sum(v == "no_answer" for v in store.read(ref)["verdict"].to_pylist())
    )
    rows = store.read(ref).to_pylist()
    failing = [r for r in rows if r["verdict"] == "no_answer" or not r["tag_valid"] or r["finish"] == "length"]
    assert failing
    shown = piped("store", "show", str(ref), "--completions", "1", "--failed", root=demo_store).stdout
    assert f"{rows[0]['arm']}: {len(failing):,} of {len(rows):,} completions lack" in shown
    first = min(failing, key=lambda r: (r["rollout"], r["problem_id"]))
    assert f"{first['problem_id']}, rollout {first['rollout']}: {first['verdict']}" in shown
    assert first["completion"].strip().splitlines()[-1][-40:] in shown and shown.count("rollout ") == 1


# What needs a package that only an extra brings, where that is not installed: a sentence that names the extra.


#: Named as missing; what comes with it is missing too.
LEAN = """
import sys
for name in ("prefect", "sqlalchemy", "streamlit", "obstore"):
    sys.modules[name] = None
from cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("server", "start"), "prefect"),
        (("serve", "--root", "."), "app"),
        (("store", "ls", "--root", "s3://bucket/root"), "s3"),
    ],
)
def test_a_missing_extra_is_named(words: tuple[str, ...], extra: str, tmp_path: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(REPO), "PREFECT_API_URL": "http://127.0.0.1:9/api"}
    done = subprocess.run(
        [sys.executable, "-c", LEAN, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )
    said = done.stdout + done.stderr
    assert f"varband[{extra}]" in said and "Traceback" not in said, said
    assert done.returncode in (1, 2)
