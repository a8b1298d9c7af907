"""Options that several commands share, and shell completion (`_VARBAND_COMPLETE=bash_source varband`)."""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from storage.errors import UserError
from tasks.engines.hardware import ENGINES

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


class Root(click.ParamType):
    """A root on the command line: a folder, or s3://bucket/prefix, which becomes the folder of its working copy."""

    name = "folder or s3://bucket/prefix"

    def __init__(self, there: bool = False) -> None:
        self.there = there

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from storage.roots import root_folder

        root = value if isinstance(value, Path) else root_folder(str(value))
        if os.path.isfile(str(root)):  # tested without a request to object storage
            raise UserError(f"--root {root}: this is a file; choose a folder")
        return check_there(root) if self.there else root


def check_there(root: Path) -> Path:
    """Return the root. Raise UserError if the root does not exist."""
    if not root.is_dir():
        raise UserError(f"--root {root}: this folder does not exist; varband run demo --root {root} creates it")
    return root


def write_json(value: object) -> None:
    """Write one line of JSON to standard output."""
    import orjson

    how = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    sys.stdout.buffer.write(orjson.dumps(value, default=str, option=how) + b"\n")
    sys.stdout.flush()


def print_result(value: object, lines: Iterable[str], *, json: bool) -> None:
    """Write a result to standard output, as JSON or as lines."""
    if json:
        write_json(value)
    else:
        click.echo("\n".join(lines))


def _root(there: bool) -> Callable[..., Any]:
    return click.option(
        "--root",
        type=Root(there),
        default=Path(".varband"),
        envvar="VARBAND_ROOT",
        help="Store of artifacts and ledger: a folder, or s3://bucket/prefix.",
    )


#: Option --root. Commands that only read need a root that exists, so that a misspelt name is not an empty root.
root, root_there = _root(there=False), _root(there=True)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
engine = click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="auto",
    help="Sampling engine; openai means the server at VARBAND_OPENAI_BASE_URL.",
)
budget = click.option(
    "--budget",
    metavar="LIMITS",
    help="Limits on what all attempts of the run spend together, e.g. tokens=2e6,gpu_hours=3,usd=20. At a limit the run"
    " pauses (exit code 75); the same command with a larger budget resumes it.",
)
anyway = click.option(
    "--anyway", is_flag=True, help="Train even if the screening found too few usable problems or rollouts."
)

shared = click.option(
    "--shared", is_flag=True, help="Share the work with other processes that run this study on this root."
)


def completed(words: Callable[[click.Context], Iterable[str]]) -> Complete:
    """Return a shell completion that offers these words."""
    return lambda context, _, begun: [CompletionItem(word) for word in words(context) if word.startswith(begun)]


def _studies(context: click.Context) -> list[str]:
    """Return the built-in profiles with their questions, and the study files in this folder."""
    from flows.study.profiles import PROFILES

    return [*PROFILES, *(path.name for path in sorted(Path().glob("*.toml")))]


def _runs(context: click.Context) -> list[str]:
    from storage.records.runs import all_runs

    root = Path(context.params.get("root") or os.environ.get("VARBAND_ROOT", ".varband"))
    return [run.id for run in all_runs(root)] if root.is_dir() else []


studies, runs = map(completed, (_studies, _runs))
