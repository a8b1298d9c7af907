"""Options that several commands share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tasks.engines.hardware import ENGINES

Command = TypeVar("Command", bound=Callable[..., object])


class Root(click.ParamType):
    """A folder, or s3://bucket/prefix: then the folder of its working copy."""

    name = "folder or s3://bucket/prefix"

    def __init__(self, there: bool = False) -> None:
        self.there = there

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from storage.roots import root_folder

        root = value if isinstance(value, Path) else root_folder(str(value))
        return check_there(root) if self.there else root


class Number(click.FloatRange):
    """A float within its range; what is no number is not, though nothing is above or below it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = super().convert(value, param, ctx)
        return found if math.isfinite(found) else self.fail(f"{value} is no finite number.", param, ctx)


def check_there(root: Path) -> Path:
    """Errors: UserError for a root that nobody has made."""
    from storage.errors import UserError

    if not root.is_dir():
        raise UserError(f"--root {root}: there is no such folder; varband run demo --root {root} makes one")
    return root


def check_folder(root: Path) -> Path:
    """Errors: UserError for a root that is a file; it may be none that anybody has made."""
    from storage.errors import UserError

    if os.path.isfile(str(root)):  # of object storage nothing is asked
        raise UserError(f"--root {root}: it is a file, and artifacts and ledger lie in a folder")
    return root


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
