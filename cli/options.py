"""Options that several commands share, and words that a shell completes (`_VARBAND_COMPLETE=bash_source varband`)."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from tasks.engines.hardware import ENGINES

Command = TypeVar("Command", bound=Callable[..., object])


class Root(click.ParamType):
    """A folder, or s3://bucket/prefix: then the folder of its working copy."""

    name = "folder or s3://bucket/prefix"

    def __init__(self, there: bool = False) -> None:
        self.there = there

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from storage.errors import UserError
        from storage.roots import root_folder

        root = value if isinstance(value, Path) else root_folder(str(value))
        if os.path.isfile(str(root)):  # of object storage nothing is asked
            raise UserError(f"--root {root}: it is a file, and artifacts and ledger lie in a folder")
        return check_there(root) if self.there else root


class Number(click.FloatRange):
    """A finite float within its range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = super().convert(value, param, ctx)
        return found if math.isfinite(found) else self.fail(f"{value} is no finite number.", param, ctx)


def check_there(root: Path) -> Path:
    """Errors: UserError for a root that does not exist."""
    from storage.errors import UserError

    if not root.is_dir():
        raise UserError(f"--root {root}: there is no such folder; varband run demo --root {root} makes one")
    return root


def write_json(value: object) -> None:
    """Write one line of JSON to standard output."""
    import orjson

    how = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    sys.stdout.buffer.write(orjson.dumps(value, default=str, option=how) + b"\n")
    sys.stdout.flush()


def _root(there: bool) -> Callable[[Command], Command]:
    return click.option(
        "--root",
        type=Root(there),
        default=Path(".varband"),
        envvar="VARBAND_ROOT",
        show_default=True,
        help="Store of artifacts and ledger: a folder, or s3://bucket/prefix.",
    )


#: Where artifacts and ledger live.
root = _root(there=False)
#: The same, for what only reads: a mistyped one is no empty one.
root_there = _root(there=True)
as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, for scripts.")
engine = click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="auto",
    show_default=True,
    help="openai: a server at VARBAND_OPENAI_BASE_URL.",
)
budget = click.option(
    "--budget",
    metavar="LIMITS",
    help="The most that the run may spend over all its attempts, e.g. tokens=2e6,gpu_hours=3,usd=20. At the wall it is"
    " parked (exit code 75); the same command with a larger budget goes on.",
)
#: Of the gate between screening and training.
ANYWAY = "gate.anyway=true"
anyway = click.option("--anyway", is_flag=True, help="Train although the screening shows that training teaches little.")


def _root_of(context: click.Context) -> Path:
    return Path(context.params.get("root") or os.environ.get("VARBAND_ROOT", ".varband"))


def studies(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Built-in profiles and their questions, and the files of studies that lie here."""
    from flows.study.profiles import PROFILES

    names = [*PROFILES, *(path.name for path in sorted(Path().glob("*.toml")))]
    return [CompletionItem(name) for name in names if name.startswith(begun)]


def settings(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Fields of the study that the line names, or of the demo while it names none that can be read."""
    from flows.study.request import profile_of, text_of
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

    found = all_runs(_root_of(context)) if _root_of(context).is_dir() else []
    return [CompletionItem(run.id, help=run.shown_state) for run in found if run.id.startswith(begun)]


def refs(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Artifacts, and runs, which stand for their reports."""
    from storage.artifacts.store import Store

    found = map(str, Store(_root_of(context)).refs())
    return [*runs(context, parameter, begun), *(CompletionItem(ref) for ref in found if ref.startswith(begun))]
