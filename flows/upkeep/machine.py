"""Everything that can change a sampled token or its verdict: engine, torch, CUDA, driver, GPU, model, scaffold and
grader."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata

from flows.study.resolve import Study
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.ledger import Ledger
from tasks.domain.policies import Policy, Sampling
from tasks.engines.hardware import engine_name, engine_now
from tasks.engines.sampling.endpoint import endpoint_for
from tasks.rollouts import account_of

#: Of these a change of the value asks for new rollouts; of others the stored ones are read or graded again.
SAMPLES = ("engine", "served model", "torch", "CUDA", "driver", "card", "model")
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as listed by nvidia-smi. free, total: MiB; None if unknown."""

    name: str
    driver: str
    free: int | None
    total: int | None


def gpus() -> list[Gpu]:
    """The GPUs of this machine. Raise UserError if nvidia-smi fails."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.free,memory.total", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    if done.returncode or any(len(row) != 4 for row in rows):
        raise UserError("nvidia-smi fails: see the driver's log; a GPU stage cannot run here")
    mib = lambda cell: int(cell) if cell.isdigit() else None  # noqa: E731
    return [Gpu(name, driver, mib(free), mib(total)) for name, driver, free, total in rows]


def environment_now(study: Study, policy: Policy) -> dict[str, str]:
    """Return the sampling and grading environment of this machine. The version of a server is `unknown` if it does not
    report it."""
    hardware = study.profile.hardware
    if engine_name(hardware.engine) == "openai":
        server = endpoint_for(hardware.endpoint)
        samples = {"engine": f"openai {server.version()}", "served model": server.model(None, hardware.served_model)}
    elif hardware.remote:
        samples = {"engine": engine_now(hardware.engine), "served model": hardware.served_model}
    else:
        import torch

        seen = [] if hardware.device == "cpu" else gpus()
        samples = {
            "engine": engine_now(hardware.engine),
            "torch": metadata.version("torch"),
            "CUDA": torch.version.cuda or "none",
            "driver": ", ".join(sorted({gpu.driver for gpu in seen})) or "none",
            "card": _card([gpu.name for gpu in seen]),
        }
    rest = {"model": policy.model.sha256, "scaffold": policy.scaffold.digest, "grader": study.grader.version}
    return samples | rest


def environment_of(store: Store, rollouts: Ref, policy: Policy, sampling: Sampling) -> dict[str, str]:
    """Return the sampling and grading environment of an evaluation, as recorded in the ledger and its manifest."""
    manifest, rows = store.manifest(rollouts), Ledger(store.root).rows(account_of(policy, sampling), ["engine"])
    engine = UNKNOWN if rows is None else ", ".join(sorted(rows["engine"].unique().to_pylist()))
    graders = store.read(rollouts, ["grader_version"])["grader_version"].unique().to_pylist()
    found = {"engine": engine, "model": policy.model.sha256, "grader": ", ".join(sorted(graders))}
    if not engine.startswith(("openai", "tinker")):
        provenance = manifest.provenance
        found |= {"torch": torch} if (torch := provenance.packages.get("torch")) else {}
        found |= {"card": _card(provenance.hardware.split(", ")[:-1])}
    return found


def _card(names: list[str]) -> str:
    """The GPU model, whatever the number: a machine may show a process only some of its GPUs."""
    return ", ".join(sorted(set(names))) or "cpu"


def changes(before: dict[str, str], now: dict[str, str]) -> dict[str, str]:
    """
    >>> changes({"engine": "vllm 0.10", "card": "H100"}, {"engine": "vllm 0.11", "card": "H100", "driver": "580.1"})
    {'engine': 'engine vllm 0.10 → vllm 0.11'}
    """
    return {
        name: f"{name} {before[name]} → {now[name]}" for name in before if now.get(name, before[name]) != before[name]
    }
