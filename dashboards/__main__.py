"""`python -m dashboards --server.port=…`: start Streamlit with the app already imported."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from dashboards.parts import root
from storage.errors import UserError
from storage.reading.query_cache import reports
from storage.reading.recorded import listed_runs


def main() -> None:
    """Fill the caches that the first page needs, and start Streamlit with the arguments of the command."""
    from streamlit.web import cli

    for module in ("pandas", "dashboards.app"):  # Streamlit loads pandas for its first table
        import_module(module)
    try:
        listed_runs(root())
        reports(root())
    except UserError as error:  # for example, the storage does not answer
        print(f"varband: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    sys.argv = ["streamlit", "run", str(Path(__file__).with_name("app.py")), *sys.argv[1:]]
    cli.main()


if __name__ == "__main__":
    main()
