"""The documentation site builds without a warning, and the pages that teach do what they say: each command, as written."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests import warm

REPO = Path(__file__).resolve().parent.parent
PAGES = sorted((REPO / "docs" / "guide").glob("*.md"))
FENCE = re.compile(r'^```(\w*)(?: title="([^"]*)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
#: What a test here has not; lines that need a server are followed in tests/flows/server/test_deploy.py.
NEEDS = (
    "needs a GPU: ",
    "needs a server: ",
    "needs a Tinker server: ",
    "needs an extra: ",
    "needs an account: ",
    "needs a model: ",
    "needs a cluster: ",
)
#: Pages that read a store in which a study is finished.
READING = ("add", "connect", "no-answer", "operate", "read-the-report")
#: Pages that run a study: minutes.
RUNNING = ("first-study",)


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found.groups(default="")) for found in FENCE.finditer(page.read_text())]


def test_every_block_of_every_page_is_run_or_says_why_not() -> None:
    assert [p.stem for p in PAGES] == [
        "add",
        "cluster",
        "connect",
        "first-study",
        "gpu-pool",
        "no-answer",
        "operate",
        "read-the-report",
        "tinker",
    ]
    for page in PAGES:
        assert page.read_text().count("```") == 2 * len(blocks(page)), f"{page.name}: a fence that is not read"
        for block in blocks(page):
            if block.language == "console":
                assert block.title.startswith(NEEDS), f"{page.name}: {block.title!r} says no reason"
            elif block.language == "bash":
                assert not block.title, f"{page.name}: a bash block is run, it needs no title"
            else:
                assert (block.language, Path(block.title).suffix) in (("toml", ".toml"), ("python", ".py")), page.name
        assert any(block.language == "bash" for block in blocks(page)), page.name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a page is followed."""
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


def follow(page: str, folder: Path) -> list[str]:
    """Does what the page says in its order; what its bash blocks printed."""
    (programs := folder.parent / "bin").mkdir()
    environment = warm.as_program(programs)
    said = []
    for block in blocks(REPO / "docs" / "guide" / f"{page}.md"):
        if block.language == "toml":
            (folder / block.title).write_text(block.text)
        if block.language != "bash":
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert done.returncode == 0, f"{page}:\n{block.text}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
        said.append(done.stdout)
    return said


@pytest.mark.parametrize("page", [p.stem for p in PAGES if p.stem not in (*READING, *RUNNING)])
def test_a_page_that_asks_and_plans_does_what_it_says(page: str, folder: Path) -> None:
    assert follow(page, folder)


@pytest.mark.parametrize("page", READING)
def test_a_page_that_reads_a_store_does_what_it_says(page: str, folder: Path, demo_store: Path) -> None:
    shutil.copytree(demo_store, folder / ".varband")
    assert follow(page, folder)


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNING)
def test_a_page_that_runs_a_study_does_what_it_says(page: str, folder: Path) -> None:
    said = "".join(follow(page, folder))
    assert "stages made" in said and list(folder.glob("report-*.html"))


def test_the_objective_that_a_page_shows_weighs_a_group() -> None:
    from tasks.domain.grpo.advantages.group import Context, Group

    (shown,) = [b for b in blocks(REPO / "docs" / "guide" / "add.md") if b.language == "python"]
    exec(shown.text, module := {})
    rewards_G = np.array([1.0, 0.0, 0.0])
    assert module["from_middle"](Group(rewards_G, rewards_G), Context())[0].tolist() == [0.5, -0.5, -0.5]


def test_studies_that_pages_and_examples_show_are_in_order(folder: Path) -> None:
    """Each file by `study check`, each example by `plan` too, as its last question asks it."""
    from flows.study.request import questions_of

    shown = [block for page in PAGES for block in blocks(page) if block.language == "toml"]
    assert len(shown) >= 3
    for block in shown:
        (folder / block.title).write_text(block.text)
    problems = [f'{{"problem": "What is {n} plus {n} times {n}?", "gold": "{n + n * n}"}}\n' for n in range(200)]
    (folder / "gsm8k_test.jsonl").write_text("".join(problems))
    examples = sorted((REPO / "examples").glob("*/study.toml"))
    assert [p.parent.name for p in examples] == ["few-shot", "scaffold-ablation", "temperature"]
    for file in [*(folder / block.title for block in shown), *examples]:
        done = warm.run([warm.VARBAND, "study", "check", str(file)])
        assert done.returncode == 0, done.stderr
    for file in examples:
        asked = [str(file), *(f"{file}/{question}" for question in questions_of(str(file)))][-1]
        done = warm.run([warm.VARBAND, "plan", asked, "--root", str(folder / "store")])
        assert done.returncode == 0 and "stages would be made" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Strict: a link or an anchor that leads nowhere, a page that is missing, a docstring that cannot be read."""
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    how = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(REPO)}
    done = subprocess.run(words, cwd=REPO, env=how, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    site = tmp_path / "site"
    assert (site / "search" / "search_index.json").stat().st_size > 100_000
    domain = (site / "reference" / "domain" / "index.html").read_text()
    assert "class Scaffold" in domain or "tasks.domain.scaffolds.Scaffold" in domain
    fetched = re.compile(r"<(script|link|img)[^>]+(src|href)=\"https?://")
    assert not [p for p in site.rglob("*.html") if fetched.search(p.read_text())], "the site fetches nothing"
