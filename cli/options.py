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
