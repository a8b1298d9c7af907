"""`varband study`: a team's own study, one file: begun, checked, shown whole, compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli import options

if TYPE_CHECKING:
    from flows.study.profile import Profile

STARTER = '''\
# A study of your own. What is not said here is as in `{base}`; `varband study show {base}` says all of it.
# Check it with `varband study check {file}`, price it with `varband plan {file}`, run it with `varband run {file}`.
base = "{base}"
purpose = "does a scratchpad widen what one sample searches, as a panel does?"
arms = ["panel", "scratchpad"]

[scaffolds.scratchpad]
template = """
Solve the problem. Work on it within <work>...</work>, then answer within <answer>...</answer>.
Problem: {{problem}}
Solution: """
trace_tag = "work"
answer_form = "tag"
stop = ["</answer>"]

[training]
steps = {steps}

# The same study with something changed, asked for as {file}/cooler
[questions.cooler]
purpose = "does it hold at a lower temperature?"
rollouts.temperature = 0.7
'''


@click.group()
def study() -> None:
    """A study of your own: one file that says what is changed of a built-in profile."""


@study.command()
@click.argument("name")
@click.option("--base", default="demo", help="What it is based on.")
def new(name: str, base: str) -> None:
    """Write NAME.toml to begin with: a scaffold of its own against the panel."""
    from flows.study.request import check_study_name, profile_named
    from storage.errors import UserError

    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    check_study_name(path.stem, path.name)
    steps = profile_named(base).training.steps
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(STARTER.format(base=base, file=path, steps=steps))
    except FileExistsError:
        raise UserError(f"{path} is there already: give another name, or change that one") from None
    click.echo(f"wrote {path}; next: varband study check {path}")


@study.command()
@click.argument("file", metavar="STUDY.toml")
@options.root
def check(file: str, root: Path) -> None:
    """Read a file as a whole, and what it names on this machine, and say everything that is wrong with it, by line.
    Makes nothing."""
    from flows.problems import prepare
    from flows.running.forecast import misread_traces
    from flows.running.plan import plan
    from flows.study.request import ENDING, Request, questions_of, text_of
    from storage.artifacts.store import Store
    from storage.errors import UserError

    own, store, text = _profile(file), Store(root), text_of(file)
    questions = questions_of(file) if file.endswith(ENDING) else []
    absent, sentences, faults = dict[str, str](), dict[str, None](), dict[str, None]()
    for word in (file, *(f"{file}/{question}" for question in questions)):
        try:
            found = Request(profile=word, text=text).study(store, planning=True)
            plan(found, store, prepare)
            absent |= found.absent
            sentences |= dict.fromkeys(misread_traces(found))
        except UserError as error:
            faults[str(error)] = None
    if faults:
        raise UserError("; ".join(faults))
    click.echo(f"{own.called}: in order; arms {', '.join(own.arms)}")
    if questions:
        click.echo(f"its questions: {', '.join(questions)}")
    for sentence in sentences:
        click.echo(sentence)
    if absent:
        click.echo("\n  ".join(["not on this machine, and a plan does without:", *absent.values()]))


@study.command()
@click.argument("which", metavar="PROFILE|STUDY.toml", shell_complete=options.studies)
def show(which: str) -> None:
    """Every field of a study, as a file that says all of it."""
    from flows.study.changes import written_out

    click.echo(written_out(_profile(which)), nl=False)


@study.command()
@click.argument("one", metavar="PROFILE|STUDY.toml", shell_complete=options.studies)
@click.argument("other", metavar="[PROFILE|STUDY.toml]", required=False, shell_complete=options.studies)
def diff(one: str, other: str | None) -> None:
    """Fields in which two studies differ; of one file alone, in which it differs from what it is based on."""
    from flows.study.changes import differences, value_text
    from flows.study.profiles import PROFILES

    own = _profile(one)
    before, after = (own, _profile(other)) if other else (PROFILES.get(own.name, own), own)
    found = differences(before, after)
    for path, (left, right) in found.items():
        click.echo(f"{path}: {value_text(left)} → {value_text(right)}")
    if not found:
        click.echo(f"{before.called} and {after.called} are one study: nothing differs")


def _profile(which: str) -> Profile:
    from flows.study.request import profile_of, text_of

    return profile_of(which, text_of(which))
