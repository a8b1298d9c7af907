"""What a large store costs: memory of every stage that reads a million rollouts, and how long people wait to look.

    python -m benchmarks.scale --root FOLDER        10⁶ rollouts of 1,000 tokens, 10⁴ artifacts, 10³ runs: 4 GB, half an hour
    python -m benchmarks.scale --root FOLDER --rollouts 20000 --tokens 200 --artifacts 500 --runs 50

Each line is a process of its own. Prints measured, target, verdict; exit code 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks.dashboards import first_page
from benchmarks.operations import Figure, timed
from benchmarks.scale_data import DRAW, GROUP, POLICY, fill_ledger, made_up_calibration, prepared
from flows.running.sessions import stages_on
from storage.artifacts.kinds import Bands, Embeddings, Partitions, Rollouts
from storage.artifacts.store import DATA, MANIFEST, Store
from storage.ledger import Ledger
from storage.records.runs import Run, now
from tasks.cross_checks import find_disputes
from tasks.domain.grading.grading import GRADER_VERSION
from tasks.embedding import EncoderSpec, embed_traces
from tasks.measures.bands import classify_bands
from tasks.measures.diversity import measure_answers, measure_ceilings, measure_diversity
from tasks.measures.pass_at_k import contrast_pass_at_k, estimate_pass_at_k
from tasks.measures.tokens import measure_tokens
from tasks.measures.votes import measure_votes
from tasks.measures.widths import measure_widths
from tasks.partitions import partition_answers, partition_rollouts
from tasks.regrading import regrade_rollouts
from tasks.sampling import sample_rollouts
from tasks.stage import Ref
from tests.dashboards.synthetic import made_up_study

#: Peak of a stage's process, libraries included.
MOST_MB = 500.0
#: Until a person sees something.
MOST_SECONDS = 2.0
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


def one(root: Path, problems: int, name: str) -> None:
    """In a process of its own: make what is missing, and say what that took."""
    store = Store(root)
    store.prepare()
    with stages_on(store) as current:
        current.toolbox._open[("embedder", ENCODER.name, ENCODER.weights_sha256)] = ToyEncoder()
        seconds = timed(lambda: STAGES[name](problems), times=1)
    assert current.made, f"{name}: there already"
    print(json.dumps({"mb": peak_mb(), "seconds": seconds}))


def alone(root: Path, problems: int, name: str) -> dict[str, float]:
    """What a stage took in a process of its own: mb, seconds."""
    words = ["--root", str(root), "--rollouts", str(problems * GROUP), "--only", name]
    done = subprocess.run([sys.executable, "-m", "benchmarks.scale", *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def figures(root: Path, problems: int) -> Iterator[Figure]:
    for name in STAGES:
        found = alone(root, problems, name)
        yield Figure(f"{name} ({found['seconds']:,.0f} s)", found["mb"], "MB", MOST_MB)


def crowded(root: Path, artifacts: int, runs: int) -> None:
    """A study with its report among as many small artifacts and records of runs."""
    report = made_up_study(root, problems=100, steps=10)
    store = Store(root)
    bands = store.refs("bands")[0]
    manifest = (store.path(bands) / MANIFEST).read_text()
    for i in range(artifacts - len(store.refs())):
        ref = Bands.of(f"{i:016x}")
        store.path(ref).mkdir()
        (store.path(ref) / MANIFEST).write_text(manifest.replace(bands.fingerprint, ref.fingerprint))
        (store.path(ref) / DATA).symlink_to(store.path(bands) / DATA)
    one = Run(
        id="-",
        profile="demo",
        request={},
        state="finished",
        report=str(report),
        started=now(),
        heartbeat=now(),
        host="here",
        pid=1,
    )
    (root / "runs").mkdir(exist_ok=True)
    for i in range(runs):
        (root / "runs" / f"demo-{i:08x}.json").write_text(
            one.model_copy(update={"id": f"demo-{i:08x}"}).model_dump_json()
        )


def waits(root: Path) -> Iterator[Figure]:
    """What people wait for, with the start of the process."""
    for words in (("ls",), ("runs",), ("plan", "demo"), ("sql", "select count(*) from artifacts")):
        command = [str(Path(sys.executable).parent / "varband"), *words, "--root", str(root)]
        seconds = timed(lambda c=command: subprocess.run(c, check=True, capture_output=True))
        yield Figure(f"varband {' '.join(words)}", seconds, "s", MOST_SECONDS)
    yield Figure("first page of the app", first_page(root), "s", MOST_SECONDS)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--only")
    for name, default in (("rollouts", 1_000_000), ("tokens", 1000), ("artifacts", 10_000), ("runs", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args(words)
    if given.only:
        return one(given.root, given.rollouts // GROUP, given.only)
    fill_ledger(Ledger(given.root), given.rollouts // GROUP, given.tokens)
    crowded(given.root / "crowded", given.artifacts, given.runs)
    missed = 0
    for figure in chain(figures(given.root, given.rollouts // GROUP), waits(given.root / "crowded")):
        print(figure.line(), flush=True)
        missed += not figure.met
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
