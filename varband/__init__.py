"""The one name of this project in an environment. Importing it makes the rooms (`tasks`, `storage`, …) importable.

A wheel has them in a folder of this package that is on nobody's path; in a checkout they lie beside it
(docs/decisions/0011-one-name-in-an-environment.md).
"""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
ROOMS = _HERE / "rooms" if (_HERE / "rooms").is_dir() else _HERE.parent

if str(ROOMS) not in sys.path:
    sys.path.insert(0, str(ROOMS))


def main() -> None:
    """The `varband` command."""
    from cli.main import main

    main()


def enter() -> dict[str, str]:
    """Pull step of every deployment: a run works with the rooms of its worker's own environment."""
    return {"directory": str(ROOMS)}
