"""Measure a large store: peak memory of every stage that reads all rollouts, and seconds until commands answer.

    python -m benchmarks.scale --root FOLDER        10⁶ rollouts of 1,000 tokens, 10⁴ artifacts, 10³ runs: 18 GB, four hours
    python -m benchmarks.scale --root FOLDER --rollouts 20000 --tokens 200 --artifacts 500 --runs 50

Each stage runs in its own process. Prints measured and limit; exit code 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from flows.running.sessions import stages_on
from storage.artifacts.schemas import Bands, Calibrations, Embeddings, Partitions, Pool, Rollouts, Splits
from storage.artifacts.store import DATA, MANIFEST, Store
from storage.ledger import LEDGER, Ledger
from tasks.domain.grading.grading import GRADER_VERSION
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.domain.scaffolds import PANEL
from tasks.embedding import EncoderSpec, embed_traces
from tasks.engines.sampling.sampler import FLUSH_ROWS
from tasks.measures.bands import classify_bands
from tasks.measures.diversity import measure_answers, measure_ceilings, measure_diversity
from tasks.measures.pass_at_k import contrast_pass_at_k, estimate_pass_at_k, measure_votes
from tasks.measures.tokens import measure_tokens
from tasks.measures.widths import measure_widths
from tasks.partitions import partition_answers, partition_rollouts
from tasks.rollouts import account_of
from tasks.sampling import sample_rollouts
from tasks.stage import Ref, stage, store

MOST_MB, MOST_SECONDS = 500.0, 2.0
POLICY = Policy(arm="panel", model=BaseModel(name="none", sha256="0" * 64))
SAMPLING = Sampling(max_tokens=12_288)
ENCODER = EncoderSpec(name="toy", weights_sha256="e" * 64, max_tokens=384)
GROUP, SOURCES, KS, DRAWS = 16, 4, (1, 4, 16), 1000
#: Texts consist of paragraphs of WORDS words, one token each.
WORDS, PARAGRAPHS, VOCABULARY, DIMENSIONS = 50, 400, 15_000, 768


class ToyEncoder:
    """Return vectors of the size of mpnet's, at once."""

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        vectors_ND = np.random.default_rng(len(texts)).normal(size=(len(texts), DIMENSIONS)).astype(np.float32)
        return vectors_ND / np.linalg.norm(vectors_ND, axis=1, keepdims=True), np.ones(len(texts))

    def encode_windows(self, texts: Sequence[str], windows: Sequence[object]) -> tuple[np.ndarray, np.ndarray]:
        vectors_ND, coverage_N = self.encode(texts)
        return np.stack([vectors_ND] * len(windows)), np.stack([coverage_N] * len(windows))


@stage(Pool, version=1)
def many_problems(*, problems: int) -> pa.Table:
    ids = [f"{i:016x}" for i in range(problems)]
    values = {
        "problem_id": ids,
        "source": [f"source-{i % SOURCES}" for i in range(problems)],
        "source_id": ids,
        "problem": [f"What is {i} + 1?" for i in range(problems)],
        "gold": [str(i + 1) for i in range(problems)],
        "gold_raw": [str(i + 1) for i in range(problems)],
        "answer_type": ["integer"] * problems,
        "cluster": ids,
    }
    return columns(Pool.schema, values, problems)


@stage(Splits, version=1)
def all_trained(*, pool: Pool) -> pa.Table:
    rows = store().read(pool, ["problem_id", "source"])
    return rows.append_column("split", pa.array(["train"] * rows.num_rows))


@stage(Calibrations, version=1)
def made_up_calibration() -> pa.Table:
    none = dict.fromkeys(("joined", "joined_rightly", "same", "pairs", "problems", "traces"), 0)
    rows = [{"partition": name, "threshold": 0.5} | none for name in ("trace", "strategy")]
    return pa.Table.from_pylist(rows, schema=Calibrations.schema)


def columns(schema: pa.Schema, values: dict[str, Any], n: int) -> pa.Table:
    """Return n rows; a column without values holds None, or 0 where None is not allowed."""
    arrays = [pa.array(values.get(f.name, [None if f.nullable else 0] * n)).cast(f.type) for f in schema]
    return pa.table(arrays, schema=schema)


def fill_ledger(ledger: Ledger, problems: int, tokens: int) -> None:
    """Append `GROUP` rollouts of every problem, about `tokens` tokens each, in shards as a sampler leaves them."""
    rng = np.random.default_rng(0)
    paragraphs = rng.integers(0, VOCABULARY, (PARAGRAPHS, WORDS)).astype(np.int32)
    texts = [" ".join(f"word{i}" for i in p) for p in paragraphs]
    levels = np.log(rng.random(256)).astype(np.float32)
    about = {"arm": POLICY.arm, "model": POLICY.model.name, "adapter": None, "step": 0, "max_tokens": 12_288}
    each = FLUSH_ROWS // GROUP
    for start in range(0, problems, each):
        n = min(each, problems - start) * GROUP
        chosen = rng.integers(0, PARAGRAPHS, (n, max(1, tokens // WORDS)))
        places = rng.permutation(n)  # they finish in any order
        problem = start + places // GROUP
        right = rng.random(n) < (problem % 7) / 6
        answers = np.where(right, problem + 1, rng.integers(0, 9, n)).astype(str)
        traces = [f"{problem[i]}: " + " ".join(texts[p] for p in chosen[i]) for i in range(n)]
        ids = paragraphs[chosen].reshape(n, -1)
        values = {
            "problem_id": [f"{p:016x}" for p in problem],
            "source": [f"source-{p % SOURCES}" for p in problem],
            "rollout": places % GROUP,
            "completion": [
                f"<mutipersonaDebate>{trace}</mutipersonaDebate> <answer>{answer}</answer>"
                for trace, answer in zip(traces, answers, strict=True)
            ],
            "trace": traces,
            "answer": answers,
            "canonical": answers,
            "correct": right,
            "verdict": np.where(right, "correct", "wrong"),
            "num_tokens": np.full(n, ids.shape[1]),
            "gold": (problem + 1).astype(str),
            "token_ids": _lists(ids),
            "logprobs": _lists(levels[rng.integers(0, 256, ids.size, np.uint8)].reshape(ids.shape)),
            "prompt_ids": _lists(ids[:, :WORDS]),
            "logprob_sum": rng.random(n) * -tokens,
            "tag_valid": [True] * n,
        }
        alike = {"arm": POLICY.arm, "grader_version": GRADER_VERSION, "finish": "stop", "reason": "exact"}
        alike |= {"reading": PANEL.reading, "engine": "none 1"}
        values |= {name: [value] * n for name, value in alike.items()}
        ledger.append(account_of(POLICY, SAMPLING), columns(LEDGER, values, n), about)


def _lists(values_NT: np.ndarray) -> pa.Array:
    n, t = values_NT.shape
    return pa.ListArray.from_arrays(np.arange(0, (n + 1) * t, t, dtype=np.int32), pa.array(values_NT.reshape(-1)))


def sampled(problems: int) -> Rollouts:
    pool = many_problems(problems=problems)
    return sample_rollouts(pool=pool, splits=all_trained(pool=pool), policy=POLICY, sampling=SAMPLING, group_size=GROUP)


def embedded(problems: int) -> Embeddings:
    return embed_traces(rollouts=sampled(problems), encoder=ENCODER)


def classed(problems: int) -> Partitions:
    return partition_rollouts(
        rollouts=sampled(problems),
        embeddings=embedded(problems),
        calibration=made_up_calibration(),
        grader_version=GRADER_VERSION,
    )


#: Name → the stage for so many problems. Each stage reads results of those above it.
STAGES: dict[str, Callable[[int], Ref]] = {
    "rollouts, all of them in the ledger": sampled,
    "bands": lambda n: classify_bands(rollouts=sampled(n)),
    "pass@k": lambda n: estimate_pass_at_k(rollouts=(sampled(n),), ks=KS, draws=DRAWS),
    "contrasts of pass@k": lambda n: contrast_pass_at_k(rollouts=(sampled(n),), ks=KS, draws=DRAWS),
    "tokens": lambda n: measure_tokens(rollouts=(sampled(n),)),
    "embeddings": embedded,
    "diversity": lambda n: measure_diversity(embeddings=embedded(n)),
    "ceilings of diversity": lambda n: measure_ceilings(embeddings=(embedded(n),)),
    "classes of answers": lambda n: partition_answers(rollouts=sampled(n), grader_version=GRADER_VERSION),
    "classes of answers, traces and strategies": classed,
    "answers": lambda n: measure_answers(rollouts=sampled(n), partitions=classed(n)),
    "votes": lambda n: measure_votes(rollouts=(sampled(n),), partitions=(classed(n),), ks=KS),
    "widths": lambda n: measure_widths(
        rollouts=(sampled(n),), partitions=(classed(n),), embeddings=(embedded(n),), ks=KS
    ),
}


def peak_mb(root: Path, problems: int, name: str) -> float:
    """Make the stage's result in this process; return the process's peak memory."""
    with stages_on(Store(root)) as current:
        current.toolbox._open[("embedder", ENCODER.name, ENCODER.weights_sha256)] = ToyEncoder()
        STAGES[name](problems)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1000  # ru_maxrss would count the parent's memory before exec


def fill_store(root: Path, artifacts: int, runs: int) -> None:
    """Make a study with its report among as many small artifacts and records of runs."""
    from tests.dashboards.made_up_rows import run_under_way
    from tests.dashboards.synthetic import made_up_study

    report, store = made_up_study(root, problems=100, steps=10), Store(root)
    bands = store.refs("bands")[0]
    manifest = (store.path(bands) / MANIFEST).read_text()
    for i in range(artifacts - len(store.refs())):
        ref = Bands.of(f"{i:016x}")
        store.path(ref).mkdir()
        (store.path(ref) / MANIFEST).write_text(manifest.replace(bands.fingerprint, ref.fingerprint))
        (store.path(ref) / DATA).symlink_to(store.path(bands) / DATA)
    run = run_under_way().model_copy(update={"state": "finished", "report": str(report)})
    (root / "runs").mkdir(exist_ok=True)
    for i in range(runs):
        numbered = run.model_copy(update={"id": f"demo-{i:08x}"})
        (root / "runs" / f"{numbered.id}.json").write_text(numbered.model_dump_json())


def seconds_until_answered(root: Path, *words: str) -> float:
    """Return the shortest of three times of a command, with the start of its process."""
    command, seconds = [str(Path(sys.executable).parent / "varband"), *words, "--root", str(root)], []
    for _ in range(3):
        began = perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(perf_counter() - began)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    for name, default in (("rollouts", 1_000_000), ("tokens", 1000), ("artifacts", 10_000), ("runs", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    root, problems, exceeded = given.root.resolve(), given.rollouts // GROUP, False

    def show(name: str, value: float, unit: str, limit: float) -> None:
        nonlocal exceeded
        exceeded |= value > limit
        print(f"{name:<62} {value:>12,.2f} {unit:<4} limit {limit:>5,.0f}", flush=True)

    Store(root).prepare()
    fill_ledger(Ledger(root), problems, given.tokens)
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        for name in STAGES:
            show(name, pool.submit(peak_mb, root, problems, name).result(), "MB", MOST_MB)
    fill_store(root / "crowded", given.artifacts, given.runs)
    for words in (("store", "ls"), ("runs",), ("plan", "demo"), ("store", "sql", "select count(*) from artifacts")):
        show(f"varband {' '.join(words)}", seconds_until_answered(root / "crowded", *words), "s", MOST_SECONDS)
    sys.exit(exceeded)


if __name__ == "__main__":
    main()
