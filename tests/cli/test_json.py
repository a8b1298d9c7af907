"""What commands print with `--json` has the fields that docs/reference/json.md lists."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli.main import varband
from tests import warm
from tests.mini import SETTINGS

PAGE = warm.REPO / "docs" / "reference" / "json.md"
#: Each row of the page: command, whether it prints a list of objects, and their fields.
ROWS = re.findall(r"^\| `varband ([^`]+)` \| (list|object) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
#: Commands of the page that need other words than those of its row; the others are run as they stand there.
WORDS = {
    "store show REF": "store show demo",
    "run demo": " ".join(["run demo", *(f"--set {setting}" for setting in SETTINGS)]),
    "study register demo": "study register demo --by me",
    "power": "power --problems 20 --group-size 4",
}
#: Commands that the page describes below its table: they need a server, a GPU or a paused run.
BELOW = {"submit", "resume", "ask", "export push", "server deploy", "replay", "store sql"}
FILES = {
    "mine.jsonl": [{"problem": f"What is {n} plus {n}?", "gold": str(2 * n)} for n in range(1, 4)],
    "theirs.jsonl": [{"problem": "What is 2+2?", "gold": "4", "completion": "#### 4"}],
}


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield every command below a group, by its words."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*words, name))
    else:
        yield " ".join(words), command


def test_every_command_with_json_is_on_the_page() -> None:
    known = {name for name, one in commands(varband) if any(p.name == "as_json" for p in one.params)}
    listed = {name for name in known for words, _, _ in ROWS if f"{words} ".startswith(f"{name} ")}
    assert known - listed == BELOW and not listed & BELOW
    assert all(f"`{name}" in PAGE.read_text() for name in BELOW)


@pytest.fixture(scope="module")
def own_store(demo_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: some commands keep what they found."""
    return Path(shutil.copytree(demo_store, tmp_path_factory.mktemp("own") / "store"))


@pytest.mark.parametrize(("words", "form", "fields"), ROWS, ids=[row[0] for row in ROWS])
def test_a_command_prints_the_fields_that_the_page_lists(
    words: str, form: str, fields: str, own_store: Path, tmp_path: Path
) -> None:
    for file, lines in FILES.items():
        (tmp_path / file).write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = WORDS.get(words, words).split()
    name = next(name for name, _ in commands(varband) if f"{words} ".startswith(f"{name} "))
    takes_root = any(p.name == "root" for p in dict(commands(varband))[name].params)
    root = ["--root", str(own_store)] if takes_root else []
    done = warm.run([warm.VARBAND, *given, "--json", *root], cwd=tmp_path)
    assert done.stdout, done.stderr
    printed = json.loads(done.stdout)
    assert isinstance(printed, list if form == "list" else dict)
    rows = printed if form == "list" else [printed]
    assert not rows or {*rows[0]} == {*re.findall(r"`(\w+)`", fields)}
