"""Tokens per second of a slice of the published screening, by random weights, and how long all of it would take.

    python -m benchmarks.screening_slice --model DIR --published FOLDER --arm panel --problems 128 [--replicas 2 --cap 1024]
    python -m benchmarks.screening_slice --model DIR --published FOLDER --arm panel --problems 288 --places 512 640 768

Every rollout ends at a length as the arm wrote on AIME, whatever it says; prompts are 200 random tokens. Nothing is graded
or kept. With --replicas N one engine samples an N-th of the problems first, then all of them do.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.published_lengths import screening_lengths
from benchmarks.serving import random_adapter
from tasks.domain.policies import ServedAdapter
from tasks.engines.hardware import Hardware
from tasks.engines.learning.memory_plan import read_config
from tasks.engines.protocols import Decoding, Request
from tasks.engines.sampling.replicas import ReplicatedGenerator
from tasks.engines.sampling.vllm import BURST, VllmGenerator

PROMPT, SAMPLES, PROBLEMS = 200, 8, 877
#: What the published study needed on its hosted trainer, in seconds, and where it cut.
PUBLISHED = {"panel": 5439.1, "thinking": 21056.7}
CAP = 8192


def main() -> None:
    args = arguments()
    lengths = screening_lengths(args.published, args.arm, args.problems, args.samples, args.cap)
    hardware = Hardware(
        max_model_len=PROMPT + args.cap + 8,
        max_num_seqs=max(args.places or [args.max_num_seqs]),
        memory_fraction=args.memory_fraction,
        dtype="bfloat16",
        engine_process=args.engine_process,
        tensor_parallel=args.tensor_parallel,
        replicas=args.replicas,
    )
    began = time.perf_counter()
    made = ReplicatedGenerator if args.replicas > 1 else VllmGenerator
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        adapter = ServedAdapter("random", random_adapter(args.model, args.rank, Path(folder))) if args.rank else None
        generator = made(args.model, hardware, args.rank, args.kv_cache)
        print(f"started in {time.perf_counter() - began:.1f} s: {generator.serving}", flush=True)
        try:
            asked = requests(args.model, lengths)
            sampled(generator, asked[:SAMPLES], None, tokens=8)
            for turn in range(3 if adapter else 0):
                began = time.perf_counter()
                sampled(generator, asked[:SAMPLES], None if turn == 1 else adapter, tokens=8)
                print(f"other weights, and 8 rollouts of 8 tokens: {time.perf_counter() - began:.2f} s", flush=True)
            for places in args.places or []:
                assert isinstance(generator, VllmGenerator), "--places: of one engine"
                in_the_middle(args, lengths, generator, asked, adapter, places)
            if not args.places:
                by_engines(args, lengths, generator, asked, adapter)
        finally:
            generator.close()


def by_engines(
    args: argparse.Namespace,
    lengths: list[list[int]],
    generator: VllmGenerator | ReplicatedGenerator,
    asked: list[Request],
    adapter: ServedAdapter | None,
) -> None:
    """Whole slices: of all engines, and before that of the first alone with its share of the problems."""
    if isinstance(generator, ReplicatedGenerator):
        share, own = len(lengths) // args.replicas, generator._replicas
        with patch.object(generator, "_replicas", own[:1]):
            told(args, lengths[:share], 1, *sampled(generator, asked[: share * args.samples], adapter))
    told(args, lengths, args.replicas, *sampled(generator, asked, adapter))


def requests(model: Path, lengths: list[list[int]]) -> list[Request]:
    draw, vocabulary = random.Random(0), read_config(model)["vocab_size"]
    made: list[Request] = []
    for group in lengths:
        prompt = tuple(draw.randrange(vocabulary // 2) for _ in range(PROMPT))
        made += [Request(len(made) + i, prompt, len(made) + i, Decoding(max_tokens=n)) for i, n in enumerate(group)]
    return made


def sampled(
    generator: VllmGenerator | ReplicatedGenerator,
    asked: list[Request],
    adapter: ServedAdapter | None,
    tokens: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(seconds after which each ended, its tokens), in the order of `asked`. tokens: of each instead of its own."""
    if tokens:
        asked = [replace(r, decoding=Decoding(max_tokens=tokens)) for r in asked]
    began, ended = time.perf_counter(), np.zeros((len(asked), 2))
    for completion in generator.generate(asked, adapter):
        ended[completion.key] = time.perf_counter() - began, len(completion.token_ids)
    return ended[:, 0], ended[:, 1]


def in_the_middle(
    args: argparse.Namespace,
    lengths: list[list[int]],
    generator: VllmGenerator,
    asked: list[Request],
    adapter: ServedAdapter | None,
    places: int,
) -> None:
    """The rate from when as many have ended as there are places, so that rollouts of every age are decoded, until the
    last one begins; the rest is given up."""
    generator._max_num_seqs, generator._burst = places, args.burst or max(1, int(places * BURST))
    queue, ended, written, marks = deque(asked), 0, 0, []
    began = time.perf_counter()
    for completion in generator.generate(queue, adapter):
        ended, written = ended + 1, written + len(completion.token_ids)
        if ended in (places, len(asked) - places):
            states = generator._llm.llm_engine.output_processor.request_states.values()
            under_way = sum(state.detokenizer.num_output_tokens() for state in states if state.detokenizer)
            marks.append((time.perf_counter() - began, written + under_way))
        if len(marks) == 2:
            break
    (first, before), (last, after) = marks
    print(
        f"{places} at once, {args.arm}, {first:.1f} to {last:.1f} s: {screened(args, lengths, (after - before) / (last - first))}",
        flush=True,
    )


def screened(args: argparse.Namespace, lengths: list[list[int]], rate: float) -> str:
    """What the whole screening takes at so many tokens a second; its interval is that of the lengths. Cut shorter, the rate
    alone."""
    if args.cap < CAP:
        return f"{rate:,.0f} tokens/s"
    means = np.array([np.mean(group) for group in lengths])
    draws = np.random.default_rng(0).integers(0, len(means), (2000, PROBLEMS))
    low, high = np.quantile(means[draws].mean(1), (0.025, 0.975)) * SAMPLES * PROBLEMS / rate
    middle = means.mean() * SAMPLES * PROBLEMS / rate
    published = PUBLISHED[args.arm]
    return (
        f"{rate:,.0f} tokens/s, {PROBLEMS} x {SAMPLES} in {middle:,.0f} s [{low:,.0f}, {high:,.0f}]; published"
        f" {published:,.0f} s, {published / middle:.1f} times"
    )


def told(
    args: argparse.Namespace, lengths: list[list[int]], engines: int, ends: np.ndarray, tokens: np.ndarray
) -> None:
    """The slice's rate, and the rate while there was always one more to begin, by which the whole screening would run."""
    places = args.max_num_seqs * engines
    waited = max(0, len(ends) - places)
    # a place that gets free is taken by the next one
    starts = np.concatenate([np.zeros(len(ends) - waited), np.sort(ends)[:waited]])
    full = starts.max() or ends.max()
    written = (tokens * np.clip((full - starts) / (ends - starts), 0, 1)).sum()
    steady = written / full
    print(
        f"{args.arm}, {engines} engine{'s' if engines > 1 else ''}: {len(ends)} rollouts, {tokens.sum():,.0f} tokens in {ends.max():.1f} s:"
        f" {tokens.sum() / ends.max():,.0f} tokens/s; in the {full:.1f} s before the last one began"
        f" {screened(args, lengths, steady)}",
        flush=True,
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--published", type=Path, required=True)
    parser.add_argument("--arm", choices=sorted(PUBLISHED), default="panel")
    parser.add_argument("--problems", type=int, default=128)
    parser.add_argument(
        "--rank", type=int, default=0, help="of an adapter that is merged, as the panel's checkpoint was"
    )
    parser.add_argument("--samples", type=int, default=SAMPLES, help="rollouts of a problem")
    parser.add_argument("--cap", type=int, default=CAP, help="tokens at which every rollout is cut")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--burst", type=int, help="rollouts that begin together in the middle of --places")
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--kv-cache", choices=("full", "fp8"), default="full")
    parser.add_argument("--max-num-seqs", type=int, default=512)
    parser.add_argument("--places", type=int, nargs="+", help="rollouts at once, one slice each, none to its end")
    parser.add_argument("--memory-fraction", type=float, default=0.93)
    parser.add_argument("--engine-process", default="core", choices=("inside", "core", "worker", "both"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
