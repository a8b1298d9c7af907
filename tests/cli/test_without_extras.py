"""What needs a package that only an extra brings, where that is not installed: a sentence that names the extra."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm import REPO

#: Named as missing; what comes with it is missing too.
LEAN = """
import sys
for name in ("prefect", "sqlalchemy", "streamlit", "obstore"):
    sys.modules[name] = None
from cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("server", "start"), "prefect"),
        (("serve", "--root", "."), "app"),
        (("store", "ls", "--root", "s3://bucket/root"), "s3"),
    ],
)
def test_a_missing_extra_is_named(words: tuple[str, ...], extra: str, tmp_path: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(REPO), "PREFECT_API_URL": "http://127.0.0.1:9/api"}
    done = subprocess.run(
        [sys.executable, "-c", LEAN, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )
    said = done.stdout + done.stderr
    assert f"varband[{extra}]" in said and "Traceback" not in said, said
    assert done.returncode in (1, 2)
