"""Commands start fast: heavy libraries are imported inside functions."""

import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
MODULES = "flows.experiment, flows.running.plan, cli.main, cli.run, storage.reading.catalog, tasks.stage"
HEAVY = [
    "torch",
    "vllm",
    "transformers",
    "peft",
    "sentence_transformers",
    "prefect",
    "streamlit",
    "sympy",
    "sklearn",
    "scipy",
]


def test_heavy_libraries_stay_at_the_edge() -> None:
    code = f"import sys, {MODULES}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
