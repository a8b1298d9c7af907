"""Milliseconds a token position of a batch, by how log-probs and adapters are served; and whether they are right.

    python -m benchmarks.serving --model DIR [--batches 32 128 512 1024] [--tokens 256] [--rank 32] [--engine-process core]
                                 [--layouts bare base merged unmerged] [--stream N] [--tensor-parallel 2]

All rollouts of a batch write the same number of tokens and share prompts of 200 in groups of 16; with --own-prompts each has one
of its own, and the clock starts after the first quarter: a batch in the middle of long rollouts. `bare` is vLLM without an
adapter and without log-probs; `base` and `merged` are this project's sampler; `unmerged` is the sampler on vLLM's LoRA operations
with vLLM's log-probs. The adapter is random, of the size that training makes; with --rank 0 there is none. Then
kept log-probs are compared with those that vLLM returns for the same tokens, and the share of the adapter's update that the served weights hold.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tasks.domain.policies import ServedAdapter
from tasks.engines.environment import quiet_libraries
from tasks.engines.hardware import Hardware
from tasks.engines.learning.handover import write_flat
from tasks.engines.learning.memory_plan import num_experts, read_config
from tasks.engines.protocols import Completion, Decoding, Request
from tasks.engines.sampling import vllm as sampling


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128, 512, 1024])
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--prompt", type=int, default=200)
    parser.add_argument("--own-prompts", action="store_true")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--memory-fraction", type=float, default=0.45)
    parser.add_argument("--engine-process", default="core", choices=("inside", "core", "worker", "both"))
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--stream", type=int, help="also this many rollouts of lengths between 1/8 and 15/8 of TOKENS")
    parser.add_argument("--layouts", nargs="+", default=["bare", "base", "merged", "unmerged"])
    args = parser.parse_args()
    quiet_libraries()
    with tempfile.TemporaryDirectory() as folder:
        adapter = ServedAdapter("random", random_adapter(args.model, args.rank, Path(folder))) if args.rank else None
        ours = [name for name in args.layouts if name != "unmerged"]
        if ours:
            with started(args, "merged" if args.rank else "auto") as generator:
                measure(args, generator, ours, adapter)
                agreement(args, generator, adapter)
        if "unmerged" in args.layouts:
            with started(args, "unmerged") as generator, patch.object(generator, "_keeps", False):
                measure(args, generator, ["unmerged"], adapter)


@contextmanager
def started(args: argparse.Namespace, adapters: Any) -> Iterator[Any]:
    began = time.perf_counter()
    hardware = Hardware(
        max_model_len=args.prompt + args.tokens * (2 if args.stream else 1) + 8,
        max_num_seqs=max(args.batches),
        memory_fraction=args.memory_fraction,
        dtype=args.dtype,
        engine_process=args.engine_process,
        tensor_parallel=args.tensor_parallel,
        adapters=adapters,
    )
    generator = sampling.VllmGenerator(args.model, hardware, args.rank)
    print(
        f"vLLM {generator.version}, adapters {generator.adapters}, log-probs {generator.logprobs}, started in"
        f" {time.perf_counter() - began:.1f} s; graphs of {len(generator.graphs)} sizes up to {max(generator.graphs, default=0)}",
        flush=True,
    )
    try:
        yield generator
    finally:
        generator.close()


def requests(args: argparse.Namespace, size: int, tokens: int) -> list[Request]:
    draw = random.Random(size)
    vocabulary = read_config(args.model)["vocab_size"]
    shared = 1 if args.own_prompts else 16
    prompts = [tuple(draw.randrange(vocabulary // 2) for _ in range(args.prompt)) for _ in range(-(-size // shared))]
    decoding = Decoding(max_tokens=tokens, stop=("</answer>",))
    return [Request(i, prompts[i // shared], i + 1, decoding) for i in range(size)]


def run(generator: Any, asked: list[Request], adapter: ServedAdapter | None, *, returned: bool) -> list[Completion]:
    """Every rollout goes on to its last token. returned: vLLM's own log-probs."""
    params = sampling._sampling_params

    def to_the_end(decoding: Decoding, seed: int, *, logprobs: bool) -> Any:
        made = params(decoding, seed, logprobs=returned)
        made.ignore_eos, made.stop = True, []
        return made

    with patch.object(sampling, "_sampling_params", to_the_end):
        return sorted(generator.generate(asked, adapter), key=lambda c: c.key)


def timed(generator: Any, asked: list[Request], adapter: ServedAdapter | None) -> float:
    began = time.perf_counter()
    run(generator, asked, adapter, returned=not generator._keeps)
    return time.perf_counter() - began


def measure(args: argparse.Namespace, generator: Any, layouts: list[str], adapter: ServedAdapter | None) -> None:
    run(generator, requests(args, min(args.batches), 16), None, returned=not generator._keeps)
    for layout in layouts:
        served = adapter if layout in ("merged", "unmerged") else None
        bare = layout == "bare" and generator._keeps
        if bare:
            generator._ask("keep_logprobs", False)
        began = time.perf_counter()
        generator._serve(served)
        print(f"{layout:9s} weights served in {time.perf_counter() - began:.3f} s", flush=True)
        with patch.object(generator, "_taken", zeros) if bare else nullcontext():
            for size in args.batches:
                skipped = args.tokens // 4 if args.own_prompts else 0
                first = requests(args, size, skipped) if skipped else requests(args, size, args.tokens)[:16]
                timed(generator, first, served)
                before = timed(generator, first, served) if skipped else 0.0
                seconds = timed(generator, requests(args, size, args.tokens), served) - before
                positions = args.tokens - skipped
                rate = size * positions / seconds
                print(
                    f"{layout:9s} n={size:5d} {1000 * seconds / positions:7.2f} ms a position {rate:9,.0f} tokens/s",
                    flush=True,
                )
            if args.stream:
                streamed(args, generator, layout, served)
        if bare:
            generator._ask("keep_logprobs", True)


def streamed(args: argparse.Namespace, generator: Any, layout: str, served: ServedAdapter | None) -> None:
    """As a screening samples: rollouts end one by one and others take their place; with bursts, and without."""
    draw = random.Random(0)
    asked = [
        replace(r, decoding=replace(r.decoding, max_tokens=draw.randint(args.tokens // 8, args.tokens * 15 // 8)))
        for r in requests(args, args.stream, args.tokens)
    ]
    for burst in (generator._burst, 1):
        with patch.object(generator, "_burst", burst):
            began = time.perf_counter()
            wrote = sum(len(c.token_ids) for c in run(generator, asked, served, returned=not generator._keeps))
            seconds = time.perf_counter() - began
        print(
            f"{layout:9s} {args.stream:,} of mixed lengths, in bursts of {burst:3d} {wrote / seconds:9,.0f} tokens/s",
            flush=True,
        )


def zeros(ended: list[tuple[Request, str, Any]]) -> list[np.ndarray]:
    return [np.zeros(len(output.token_ids), np.float32) for _, _, output in ended]


def agreement(args: argparse.Namespace, generator: Any, adapter: ServedAdapter | None) -> None:
    """Kept log-probs against those returned beside them, in one call, with slots used again."""
    if not generator._keeps:
        return
    returned: dict[int, np.ndarray] = {}
    completion = generator._completion

    def note(request: Request, output: Any, logprobs_T: np.ndarray) -> Completion:
        returned[request.key] = sampling._returned(output)
        return completion(request, output, logprobs_T)

    asked = requests(args, 2 * max(args.batches), 64)
    with patch.object(generator, "_completion", note):
        done = run(generator, asked, adapter, returned=True)
    furthest = max(float(np.abs(c.logprobs_T - returned[c.key]).max()) for c in done)
    print(f"kept log-probs of {len(done)} rollouts: at most {furthest:.1e} from those that vLLM returns", flush=True)


def random_adapter(model: Path, rank: int, folder: Path) -> Path:
    """A as training starts it, B as after some steps of it; of a mixture, as it is handed over, on the GPU if there is
    one."""
    import torch
    from safetensors.torch import save_file

    from tasks.domain.grpo.types import ALL_LINEAR

    shapes = adapted_shapes(read_config(model))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    draw = torch.Generator(device).manual_seed(0)
    tensors = {}
    for name, (*experts, rows, columns) in shapes.items():
        uniform = torch.rand(*experts, rank, columns, generator=draw, device=device) * 2 - 1
        normal = torch.randn(*experts, rows, rank, generator=draw, device=device)
        tensors[f"{name}.lora_A.weight"] = (uniform / columns**0.5).bfloat16()
        tensors[f"{name}.lora_B.weight"] = (normal * 1e-4).bfloat16()
    if num_experts(read_config(model)):
        stacks = {name: tuple(t.shape) for name, t in tensors.items()}
        write_flat(folder, torch.cat([t.flatten() for t in tensors.values()]), stacks, 1.0)
        del tensors
        torch.cuda.empty_cache()
        return folder
    named = {f"base_model.model.{name}": tensor.cpu() for name, tensor in tensors.items()}
    save_file(named, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": sorted(ALL_LINEAR)}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def adapted_shapes(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Rows and columns of each linear layer; before them the number of experts, where those of a layer are one."""
    hidden, experts = c["hidden_size"], num_experts(c)
    inner = c["moe_intermediate_size"] if experts else c["intermediate_size"]
    head = c.get("head_dim") or hidden // c["num_attention_heads"]
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    many, mlp = ((experts,), "mlp.experts") if experts else ((), "mlp")
    each: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        f"{mlp}.gate_proj": (*many, inner, hidden),
        f"{mlp}.up_proj": (*many, inner, hidden),
        f"{mlp}.down_proj": (*many, hidden, inner),
    }
    layers = range(c["num_hidden_layers"])
    return {f"model.layers.{n}.{name}": shape for n in layers for name, shape in each.items()}


if __name__ == "__main__":
    main()
