"""Everything that can change a sampled token or its verdict: engine, torch, CUDA, driver, GPU, model, scaffold and
grader."""

from __future__ import annotations

from importlib import metadata

from flows.study.resolve import Study
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.ledger import Ledger
from tasks.domain.policies import Policy, Sampling
from tasks.engines.hardware import engine_name, engine_now, gpus_here
from tasks.engines.sampling.endpoint import endpoint_for
from tasks.rollouts import account_of

#: A change of one of these requires new rollouts; after any other change stored rollouts are parsed or graded again.
SAMPLES = ("engine", "served model", "torch", "CUDA", "driver", "card", "model")
UNKNOWN = "unknown"


def environment_now(study: Study, policy: Policy) -> dict[str, str]:
    """Return the sampling and grading environment of this machine. A server that does not report its version has
    `unknown`."""
    hardware = study.profile.hardware
    if engine_name(hardware.engine) == "openai":
        server = endpoint_for(hardware.endpoint)
        samples = {"engine": f"openai {server.version()}", "served model": server.model(None, hardware.served_model)}
    elif hardware.remote:
        samples = {"engine": engine_now(hardware.engine), "served model": hardware.served_model}
    else:
        import torch

        seen = [] if hardware.device == "cpu" else gpus_here()
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
