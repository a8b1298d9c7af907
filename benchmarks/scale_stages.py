"""The stages that benchmarks/scale.py asks, each in a process that imports no more than they do.

python -m benchmarks.scale_stages FOLDER 62500 widths        of a store that has what comes before it in STAGES
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

import varband
from benchmarks.scale_data import DRAW, GROUP, POLICY, made_up_calibration, prepared
from flows.running.sessions import stages_on
from storage.artifacts.kinds import Embeddings, Partitions, Rollouts
from storage.artifacts.store import Store
from tasks.domain.grading.grading import GRADER_VERSION
from tasks.embedding import EncoderSpec, embed_traces
from tasks.measures.bands import classify_bands
from tasks.measures.diversity import measure_answers, measure_ceilings, measure_diversity
from tasks.measures.pass_at_k import contrast_pass_at_k, estimate_pass_at_k
from tasks.measures.tokens import measure_tokens
from tasks.measures.votes import measure_votes
from tasks.measures.widths import measure_widths
from tasks.partitions import partition_answers, partition_rollouts
from tasks.regrading import find_disputes, regrade_rollouts
from tasks.sampling import sample_rollouts
from tasks.stage import Ref

ENCODER = EncoderSpec(name="toy", weights_sha256="e" * 64, max_tokens=384)
DIMENSIONS = 768
KS, DRAWS = (1, 4, 16), 1000


class ToyEncoder:
    """Vectors of the size of mpnet's, at once."""

    def encode_windows(self, texts: Sequence[str], windows: Sequence[object]) -> tuple[np.ndarray, np.ndarray]:
        vectors_ND = np.random.default_rng(len(texts)).normal(size=(len(texts), DIMENSIONS)).astype(np.float32)
        vectors_ND /= np.linalg.norm(vectors_ND, axis=1, keepdims=True)
        return np.stack([vectors_ND] * len(windows)), np.ones((len(windows), len(texts)))

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        vectors_WND, coverage_WN = self.encode_windows(texts, [None])
        return vectors_WND[0], coverage_WN[0]


def sampled(problems: int) -> Rollouts:
    pool, splits = prepared(problems)
    return sample_rollouts(pool=pool, splits=splits, policy=POLICY, sampling=DRAW, group_size=GROUP)


def regraded(problems: int) -> Rollouts:
    overruled = (("7", "8", "correct", "for the benchmark"),)
    pool, _ = prepared(problems)
    return regrade_rollouts(
        rollouts=sampled(problems),
        pool=pool,
        installed=GRADER_VERSION,
        overrides=overruled,  # type: ignore[arg-type]
    )


def embedded(problems: int) -> Embeddings:
    return embed_traces(rollouts=sampled(problems), encoder=ENCODER)


def classed(problems: int) -> Partitions:
    return partition_rollouts(
        rollouts=sampled(problems),
        embeddings=embedded(problems),
        calibration=made_up_calibration(),
        grader_version=GRADER_VERSION,
    )


#: In this order: each finds what those before it made. Of so many problems, what a stage is called → how it is asked.
STAGES: dict[str, Callable[[int], Ref]] = {
    "rollouts, all of them in the ledger": sampled,
    "regraded under overrides": regraded,
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
    "disputes": lambda n: find_disputes(rollouts=(sampled(n),), pool=prepared(n)[0]),
    "widths": lambda n: measure_widths(
        rollouts=(sampled(n),), partitions=(classed(n),), embeddings=(embedded(n),), ks=KS
    ),
}


def peak_mb() -> float:
    """Of this process: VmHWM, which unlike ru_maxrss does not count what its parent had before it was replaced."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) / 1000


def made_here(root: Path, problems: int, name: str) -> None:
    """Make what is missing in this process, and say what that took."""
    store = Store(root)
    store.prepare()
    with stages_on(store) as current:
        current.toolbox._open[("embedder", ENCODER.name, ENCODER.weights_sha256)] = ToyEncoder()
        began = perf_counter()
        STAGES[name](problems)
        seconds = perf_counter() - began
    assert current.made, f"{name}: there already"
    print(json.dumps({"mb": peak_mb(), "seconds": seconds}))


def alone(root: Path, problems: int, name: str) -> dict[str, float]:
    """What a stage took in a process of its own: mb, seconds."""
    command = [sys.executable, "-m", "benchmarks.scale_stages", str(root.resolve()), str(problems), name]
    done = subprocess.run(command, cwd=varband.ROOMS, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    made_here(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
