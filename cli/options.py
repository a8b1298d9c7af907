"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

#: Where artifacts and ledger live.
root = click.option(
    "--root",
    type=click.Path(path_type=Path),
    default=Path(".varband"),
    envvar="VARBAND_ROOT",
    show_default=True,
    help="Store of artifacts and ledger: a folder.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, for scripts.")
budget = click.option(
    "--budget",
    metavar="LIMITS",
    help="The most that the run may spend over all its attempts, e.g. tokens=2e6,gpu_hours=3,usd=20. At the wall it is"
    " parked (exit code 75); the same command with a larger budget goes on.",
)
