"""`varband completion`: what a shell is told once, so that it completes commands, options, studies, runs and refs."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

PROGRAM = "varband"
VARIABLE = "_VARBAND_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what SHELL needs to complete varband's words: eval "$(varband completion bash)" in its start file."""
    from cli.main import varband

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(varband, {}, PROGRAM, VARIABLE).source())


def _root(context: click.Context) -> Path:
    return Path(context.params.get("root") or os.environ.get("VARBAND_ROOT", ".varband"))


def studies(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Built-in profiles and their questions, and the files of studies that lie here."""
    from flows.study.profiles import PROFILES

    names = [*PROFILES, *(path.name for path in sorted(Path().glob("*.toml")))]
    return [CompletionItem(name) for name in names if name.startswith(begun)]


def settings(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Fields of the study that the line names, or of the demo while it names none that can be read."""
    from flows.study.lookup import profile_of, text_of
    from flows.study.set_option import settable
    from storage.errors import UserError

    # of a line that ends where a value is wanted click has not told options and arguments apart yet
    words = [context.params.get("profile"), *context.args, "demo"]
    for word in (word for word in words if word):
        try:
            study = profile_of(word, text_of(word))
        except UserError:
            continue
        return [CompletionItem(f"{path}=") for path in settable(study) if path.startswith(begun)]
    return []


def runs(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    from storage.records.runs import all_runs

    found = all_runs(_root(context)) if _root(context).is_dir() else []
    return [CompletionItem(run.id, help=run.shown_state) for run in found if run.id.startswith(begun)]


def refs(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Artifacts, and runs, which stand for their reports."""
    from storage.artifacts.store import Store

    found = map(str, Store(_root(context)).refs())
    return [*runs(context, parameter, begun), *(CompletionItem(ref) for ref in found if ref.startswith(begun))]
