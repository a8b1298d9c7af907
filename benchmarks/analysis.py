"""Speed of the analysis half: a million rollouts through bands, pass@k with 10,000 draws and token efficiency, beside a
plain pandas and loop version of the same; distances of large groups; the encoder beside a plain `encode` call.

    python benchmarks/analysis.py [--rows 1000000] [--encoder FOLDER] [--json]

Both sides run on one thread, so CPU seconds compare them whatever else the machine does; wall seconds stand beside ours.
The plain version states bands and pass@k once more on purpose: what is timed beside a function shares nothing with it.
It draws 500 times fewer bootstrap draws, and its draws alone are scaled up to the full number.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from storage.sql import query
from tasks.measures.bands import bands_of
from tasks.measures.groups import count_groups
from tasks.measures.pass_at_k import passk_of
from tasks.measures.tokens import tokens_of

G, KS, DRAWS, PLAIN_DRAWS = 16, (1, 2, 4, 8, 16), 10_000, 20


def rollouts(rows: int, seed: int = 0) -> pa.Table:
    """Two arms, 16 rollouts a problem, four sources; difficulty like the published screening, lengths log-normal."""
    rng = np.random.default_rng(seed)
    problems = rows // (2 * G)
    name = np.array([f"{i:016x}" for i in range(problems)])
    source = np.array(["olympiadbench", "amc", "aime", "hmmt"])[rng.choice(4, problems, p=[0.77, 0.09, 0.07, 0.07])]
    parts = []
    for arm, (a, b), length in (("panel", (0.28, 1.3), 6.6), ("thinking", (0.7, 0.5), 8.6)):
        p = rng.beta(a, b, problems)
        correct = rng.random((problems, G)) < p[:, None]
        tokens = np.minimum(rng.lognormal(length, 0.6, (problems, G)), 16_384).astype(np.int32)
        n = problems * G
        parts.append(
            pa.table(
                {
                    "problem_id": pa.array(np.repeat(name, G)),
                    "source": pa.array(np.repeat(source, G)),
                    "arm": pa.array([arm] * n),
                    "adapter": pa.nulls(n, pa.string()),
                    "step": pa.array(np.zeros(n, np.int32)),
                    "seed": pa.array(np.zeros(n, np.int64)),
                    "rollout": pa.array(np.tile(np.arange(G, dtype=np.int32), problems)),
                    "correct": pa.array(correct.reshape(-1)),
                    "finish": pa.array(np.where(tokens.reshape(-1) >= 16_384, "length", "stop")),
                    "num_tokens": tokens.reshape(-1),
                }
            )
        )
    return pa.concat_tables(parts)


def of_arm(table: pa.Table, arm: str) -> pa.Table:
    return query("from t where arm = $arm", {"arm": arm}, t=table)


def fast(table: pa.Table) -> dict[str, float]:
    seconds = {}
    for name, step in (
        ("bands", lambda: [bands_of(of_arm(table, a)) for a in ("panel", "thinking")]),
        ("passk", lambda: passk_of(count_groups(table), KS, DRAWS, 0)),
        ("tokens", lambda: tokens_of(table)),
    ):
        seconds[name], _ = timed(step)
    return seconds


def plain(table: pa.Table) -> dict[str, float]:
    """The same tables the obvious way: pandas groups, a loop over problems, a loop over bootstrap draws."""
    frame = table.to_pandas()  # not counted
    seconds: dict[str, float] = {}

    def bands() -> object:
        counts = frame.groupby(["arm", "source", "problem_id"])["correct"].agg(["sum", "count"])
        return counts.apply(
            lambda r: "all_zero" if r["sum"] == 0 else "all_one" if r["sum"] == r["count"] else "variance", axis=1
        )

    def passk() -> None:
        rng = np.random.default_rng(0)
        for keys in (["arm"], ["arm", "source"]):
            for _, part in frame.groupby(keys):
                counts = part.groupby("problem_id")["correct"].agg(["count", "sum"])
                for k in KS:
                    values = np.array([1 - comb(n - c, k) / comb(n, k) for n, c in counts.itertuples(index=False)])
                    with drawing(DRAWS / PLAIN_DRAWS):
                        draws = [rng.choice(values, len(values)).mean() for _ in range(PLAIN_DRAWS)]
                    np.quantile(draws, [0.025, 0.975])

    def tokens() -> None:
        rng = np.random.default_rng(0)
        for keys in (["arm"], ["arm", "source"]):
            for _, part in frame.groupby(keys):
                sums = part.groupby("problem_id")[["num_tokens", "correct"]].sum().to_numpy()
                with drawing(2_000 / PLAIN_DRAWS):
                    for _ in range(PLAIN_DRAWS):
                        drawn = sums[rng.integers(0, len(sums), len(sums))].sum(axis=0)
                        _ = drawn[0] / max(drawn[1], 1)
        index = ["source", "problem_id", "rollout"]
        wide = frame.pivot_table(index=index, columns="arm", values=["correct", "num_tokens"])
        ratio = wide["num_tokens"]["thinking"] / wide["num_tokens"]["panel"]
        ratio.groupby([wide["correct"]["panel"], wide["correct"]["thinking"]]).describe()

    added = 0.0

    @contextmanager
    def drawing(times: float) -> Iterator[None]:
        nonlocal added
        began = time.process_time()
        yield
        added += (times - 1) * (time.process_time() - began)

    for name, step in (("bands", bands), ("passk", passk), ("tokens", tokens)):
        added = 0.0
        measured, _ = timed(step)
        seconds[name] = measured + added
    return seconds


def timed(step: Callable[[], Any]) -> tuple[float, Any]:
    """(CPU seconds of all threads, result)"""
    began = time.process_time()
    made = step()
    return time.process_time() - began, made


def distances(groups: int = 200, n: int = 128, size: int = 768) -> dict[str, float]:
    from tasks.domain.statistics.estimators import mean_pairwise_distance

    v = np.random.default_rng(0).normal(size=(groups, n, size)).astype(np.float32)
    v /= np.linalg.norm(v, axis=2, keepdims=True)
    ours, a = timed(lambda: [mean_pairwise_distance(g) for g in v])
    loops, b = timed(lambda: [np.mean([1 - g[i] @ g[j] for i in range(n) for j in range(i)]) for g in v[:5]])
    assert np.allclose(a[:5], b, atol=1e-5)
    return {"groups": groups, "n": n, "ours_s": ours, "loops_s": loops * groups / 5, "times": loops * groups / 5 / ours}


def traces(number: int) -> list[str]:
    """Of log-normal lengths around 100 words, from a few to more than an encoder reads; no two alike."""
    rng = np.random.default_rng(0)
    words = ["let", "we", "have", "the", "sum", "of", "x", "and", "y", "then", "is", "=", "+", "12", "prime", "angle"]
    return [" ".join(rng.choice(words, int(min(max(rng.lognormal(4.6, 0.9), 4), 900)))) for _ in range(number)]


def encoding(folder: Path, number: int) -> dict[str, float]:
    """Beside a plain `encode` at batch 32, which pads each batch to its longest text."""
    import torch

    from tasks.engines.encoding.encoders import SentenceEncoder

    torch.set_num_threads(1)
    texts = traces(number)
    encoder = SentenceEncoder(folder, name=folder.name, max_tokens=384 if "mpnet" in folder.name else 256)
    encoder.encode(texts[:4])
    ours, (vectors, coverage) = timed(lambda: encoder.encode(texts))
    simple, expected = timed(lambda: encoder.model.encode(texts, batch_size=32, normalize_embeddings=True))
    return {
        "traces": number,
        "seen_whole": float((coverage == 1).mean()),
        "ours_per_cpu_s": number / ours,
        "plain_per_cpu_s": number / simple,
        "times": simple / ours,
        "largest_difference": float(np.abs(vectors - expected).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--encoder", type=Path, help="folder of a sentence-transformers model")
    parser.add_argument("--traces", type=int, default=400, help="how many the encoder is given")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    import scipy.stats  # noqa: F401  loaded before the clock starts, like pandas on the other side

    table, began = rollouts(args.rows), time.perf_counter()
    ours = fast(table)
    wall = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    simple = plain(table)
    result: dict[str, Any] = {
        "rows": table.num_rows,
        "draws": DRAWS,
        "cpu_seconds": ours,
        "cpu_s": sum(ours.values()),
        "wall_s": wall,
        "peak_gib": memory,
        "plain_cpu_seconds": simple,
        "plain_draws": PLAIN_DRAWS,
        "plain_cpu_s": sum(simple.values()),
        "times": sum(simple.values()) / sum(ours.values()),
        "distances": distances(),
    }
    if args.encoder:
        result["encoder"] = encoding(args.encoder, args.traces)
    print(json.dumps(result, indent=None if args.json else 1))


if __name__ == "__main__":
    main()
