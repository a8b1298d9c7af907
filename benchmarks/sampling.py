"""The screening stage against vLLM's bare engine on the same prompts: tokens a second, and their ratio.

    python -m benchmarks.sampling [--model models/demo] [--problems 100] [--pool FILE]

Both use one vLLM, loaded once, with the same sampling parameters and seeds, so they write the same number of tokens. The
stage renders and encodes prompts, samples in durable portions, grades, writes ledger and artifact; the bare call gets token
ids and returns objects. They take turns, each repeat with seeds of its own; the ratio is of the medians. `streaming`
makes results durable as they finish, as GPU profiles do; `batches` is how CPU profiles sample.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.running.sessions import stages_on
from storage.artifacts.schemas import Pool, Splits
from storage.artifacts.store import Store
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.domain.problems.sources import source_spec
from tasks.engines.hardware import Hardware
from tasks.engines.model_files import model_digest
from tasks.engines.toolbox import Toolbox
from tasks.pool import PoolPolicy, build_pool, make_synthetic_pool, split_pool
from tasks.rollouts import requests_for
from tasks.sampling import sample_rollouts
from tasks.stage import Ref

HARDWARE: dict[str, Any] = {
    "max_model_len": 512,
    "max_num_seqs": 128,
    "kv_cache_mb": 256,
    "threads": 1,
    "dtype": "float32",
    "memory_fraction": 0.45,
    "engine_process": "inside",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/demo"))
    parser.add_argument("--pool", type=Path, help="a file of problems; else synthetic ones")
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=256)
    for name, value in HARDWARE.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    machine = {name: getattr(args, name) for name in HARDWARE}
    hardware = Hardware(engine="vllm", batch_size=args.batch_size, **machine)
    digest = model_digest(args.model)
    policy = Policy(arm="panel", model=BaseModel(name=args.model.name, sha256=digest))
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        store.prepare()
        with stages_on(store, hardware=hardware, places={digest: args.model}) as current:
            pool, splits = _problems(args, current.toolbox)
            measure(args, current.toolbox, store, pool, splits, policy)


def _problems(args: argparse.Namespace, tools: Toolbox) -> tuple[Pool, Splits]:
    if args.pool:
        spec, path = source_spec(str(args.pool), None)
        tools.places[spec.sha256] = path
        pool = build_pool(sources=(spec,), policy=PoolPolicy(limit=args.problems))
    else:
        pool = make_synthetic_pool(per_source=-(-args.problems // 4), seed=7)
    return pool, split_pool(pool=pool, heldout_per_source=1, seed=0)


def measure(args: argparse.Namespace, tools: Toolbox, store: Store, pool: Pool, splits: Splits, policy: Policy) -> None:
    base = Sampling(max_tokens=args.max_tokens, seed=0)
    tools.graders()
    warm = replace(base, seed=10**6, max_tokens=min(64, args.max_tokens))
    bare_tokens(tools, store, pool, policy, warm, args)  # both warm
    rates: dict[str, list[float]] = {way: [] for way in ("bare", "batches", "streaming")}
    for repeat in range(args.repeats):
        for place, how in enumerate(rates):
            draw = replace(base, seed=1000 * (repeat + 1) + (0 if how == "bare" else place))
            load, began = os.getloadavg()[0], time.perf_counter()
            if how == "bare":
                wrote = bare_tokens(tools, store, pool, policy, draw, args)
            else:
                tools.hardware = replace(tools.hardware, batch_size=args.batch_size if how == "batches" else None)
                given: dict[str, Any] = {"pool": pool, "splits": splits, "policy": policy, "sampling": draw}
                made = sample_rollouts(**given, group_size=args.group_size)
                wrote = sum(store.read(made, ["num_tokens"])["num_tokens"].to_pylist())
            seconds = time.perf_counter() - began
            rates[how].append(wrote / seconds)
            print(
                f"{repeat} {how:10} {wrote:8,} tokens {seconds:7.2f} s {wrote / seconds:9,.0f} tok/s, load {load:.1f}"
            )
    bare = statistics.median(rates.pop("bare"))
    print(f"\n{platform.machine()}, {os.cpu_count()} CPUs; {args.model.name}, {args.problems} × {args.group_size}")
    for how, rate in ((how, statistics.median(found)) for how, found in rates.items()):
        print(f"stage, {how}: {rate:,.0f} tok/s, bare vLLM: {bare:,.0f} tok/s, ratio {rate / bare:.3f}")


def bare_tokens(
    tools: Toolbox, store: Store, pool: Ref, policy: Policy, draw: Sampling, args: argparse.Namespace
) -> int:
    """Tokens that vLLM's own engine writes for the prompts of the stage, each with its seed."""
    from tasks.engines.protocols import Decoding
    from tasks.engines.sampling.vllm import _sampling_params

    generator: Any = tools.generator(policy.model.sha256, 0)
    if generator._keeps:
        generator._call("keep_logprobs", False)
    engine, scaffold, encoded, tokens = generator._engine, policy.scaffold, {}, 0
    for n, want in enumerate(requests_for(store.read(pool), policy, draw, range(args.group_size))):
        if want.problem_id not in encoded:
            encoded[want.problem_id] = generator.encode(scaffold, want.problem)
        decoding = Decoding(max_tokens=draw.max_tokens, stop=scaffold.stop)
        params = _sampling_params(decoding, want.request_seed, logprobs=False)
        engine.add_request(f"bare {n}", {"prompt_token_ids": list(encoded[want.problem_id])}, params)
    while engine.has_unfinished_requests():
        tokens += sum(len(o.outputs[0].token_ids) for o in engine.step() if o.finished)
    if generator._keeps:
        generator._call("keep_logprobs", True)
    return tokens


if __name__ == "__main__":
    main()
