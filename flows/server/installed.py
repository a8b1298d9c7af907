"""Whether Prefect is here, which only an extra brings."""

from __future__ import annotations

from importlib.util import find_spec

from storage.errors import UserError


def check_prefect(command: str) -> None:
    """Errors: UserError, which names the extra, if it is not installed."""
    if find_spec("prefect") is None:
        raise UserError(f"{command} needs prefect: install varband[prefect]")
