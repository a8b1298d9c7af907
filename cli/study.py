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
@click.option("--base", default="demo", show_default=True, help="What it is based on.")
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
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
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
    from flows.study.changes import differences
    from flows.study.request import Request, file_of, questions_of, text_of
    from storage.artifacts.store import Store
    from storage.errors import UserError

    own, asked, store, text = _asked(file), questions_of(file), Store(root), text_of(file)
    path, question = file_of(file) or (Path(file), "")
    words = [file, *(f"{path}/{one}" for one in asked if not question)]
    found, faults = [], []
    for word in words:
        try:
            found.append(Request(profile=word, text=text).study(store, planning=True))
            plan(found[-1], store, prepare)
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError("; ".join(dict.fromkeys(faults)))
    changed = differences(_base(own), own)
    click.echo(f"{own.called}: in order; arms {', '.join(own.arms)}; {len(changed)} fields differ from {own.name}")
    if asked:
        click.echo(f"its questions: {', '.join(asked)}")
    for sentence in dict.fromkeys(s for one in found for s in misread_traces(one)):
        click.echo(sentence)
    if absent := {name: said for one in found for name, said in one.absent.items()}:
        click.echo("not on this machine, and a plan does without:")
        for said in absent.values():
            click.echo(f"  {said}")


@study.command()
@click.argument("which", metavar="PROFILE|STUDY.toml")
def show(which: str) -> None:
    """Every field of a study, as a file that says all of it."""
    from flows.study.changes import written_out

    click.echo(written_out(_asked(which)), nl=False)


@study.command()
@click.argument("one", metavar="PROFILE|STUDY.toml")
@click.argument("other", metavar="[PROFILE|STUDY.toml]", required=False)
def diff(one: str, other: str | None) -> None:
    """Fields in which two studies differ; of one file alone, in which it differs from what it is based on."""
    from flows.study.changes import differences, value_text

    own = _asked(one)
    before, after = (own, _asked(other)) if other else (_base(own), own)
    found = differences(before, after)
    for path, (left, right) in found.items():
        click.echo(f"{path}: {value_text(left)} → {value_text(right)}")
    if not found:
        click.echo(f"{before.called} and {after.called} are one study: nothing differs")


def _asked(which: str) -> Profile:
    from flows.study.request import profile_of, text_of

    return profile_of(which, text_of(which))


def _base(own: Profile) -> Profile:
    from flows.study.profiles import PROFILES
    from flows.study.request import profile_named

    return profile_named(own.name) if own.name in PROFILES else own
