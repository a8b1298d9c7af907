"""A study that costs nothing but time, shared out among workers: wall time against their number, and what kills cost.

    python -m benchmarks.workers [--workers 1 2 4 8] [--kills 6]
    python -m benchmarks.workers --demo [--kills 6] [--calibrated ROOT]

Stages sleep instead of occupying a GPU; each piece has a process of its own, as on a pool. Every line ends with the same
artifacts and rollouts as the first, or the command fails. `--demo`: the demo's own model, sampler, learner, encoder and
grader at a small size, in one process and then on eight workers.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pyarrow as pa

from flows.experiment import experiment
from flows.running.pieces import Dag, Piece, make_piece, next_pieces
from flows.running.plan import execute
from flows.running.sessions import unheard
from flows.study.profiles import QWEN_1_5B
from flows.study.request import Request as Asked
from flows.study.resolve import PoolInputs, Study
from storage.artifacts.kinds import Bands, Embeddings, Rollouts, Training
from storage.artifacts.store import Store
from storage.ledger import Ledger
from tasks.domain.arms import ARMS
from tasks.domain.policies import BaseModel, Policy, Sampling, ServedAdapter
from tasks.engines.hardware import Hardware
from tasks.engines.protocols import Request
from tasks.engines.toolbox import Toolbox
from tasks.measures.bands import classify_bands
from tasks.measures.pass_at_k import estimate_pass_at_k
from tasks.sampling import sample_rollouts
from tasks.splits import split_pool
from tasks.stage import Ref, stage
from tasks.synthetic_pool import make_synthetic_pool
from tests.chaos.engines import PlainGraders, SeededGenerator, answered
from tests.mini import SETTINGS, hashes, report_text

MODEL = BaseModel(name="sleeps", sha256="5" * 64)
DRAW, GROUP, SEEDS = Sampling(max_tokens=64, seed=3), 8, (0, 1)
TRAINING_SECONDS, EMBEDDING_SECONDS, ROLLOUT_SECONDS = 24.0, 6.0, 0.12
HARDWARE = Hardware(batch_size=16, shard_rollouts=64)


class SleepingGenerator(SeededGenerator):
    """One rollout after the other, each a part of a second."""

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[object]:  # type: ignore[override]
        for request in requests:
            time.sleep(ROLLOUT_SECONDS)
            yield answered(request)


@stage(Training, version=1)
def sleep_for_training(*, bands: Bands, seed: int) -> pa.Table:
    time.sleep(TRAINING_SECONDS)
    return Training.schema.empty_table()


@stage(Embeddings, version=1)
def sleep_for_embedding(*, rollouts: Rollouts) -> pa.Table:
    time.sleep(EMBEDDING_SECONDS)
    return Embeddings.schema.empty_table()


def sleeps(study: Study) -> Ref:
    """The experiment's shape: every arm screened and banded, trained under each seed, asked the held-out, embedded."""
    pool = make_synthetic_pool(per_source=8, seed=0)
    splits = split_pool(pool=pool, heldout_per_source=4, seed=0)
    ends = []
    for arm in study.profile.arms:
        start = Policy(arm=arm, model=MODEL)
        asked = {"pool": pool, "splits": splits, "sampling": DRAW, "group_size": GROUP}
        bands = classify_bands(rollouts=sample_rollouts.titled(f"screen {arm}")(policy=start, **asked))
        for seed in SEEDS:
            training = sleep_for_training.titled(f"train {arm} {seed}")(bands=bands, seed=seed)
            end = replace(start, adapter=str(training), adapter_step=1, step=1, seed=seed)
            ends.append(sample_rollouts.titled(f"evaluate {arm} {seed}")(policy=end, split="heldout", **asked))
            sleep_for_embedding(rollouts=ends[-1])
    return estimate_pass_at_k(rollouts=tuple(ends), ks=(1, 4), draws=100)


def study_of_sleeps(_: Store | None = None) -> Study:
    profile = replace(QWEN_1_5B, arms=tuple(list(ARMS)[:4]), hardware=HARDWARE)
    return Study(profile, dict.fromkeys(ARMS, MODEL), {"": PoolInputs(())}, "d" * 64, {MODEL.sha256: Path()}, {})


def study_of_demo(store: Store) -> Study:
    wishes = (*SETTINGS, "hardware.batch_size=32", "hardware.shard_rollouts=64")
    return Asked(profile="demo", settings=wishes, engine="transformers", plain=True).study(store)


@dataclass(frozen=True, slots=True)
class Work:
    """What is shared out. patience: seconds of a process before it may be killed, at most."""

    study: Callable[[Store], Study]
    dag: Dag
    made_up: bool
    patience: float
    preloaded: tuple[str, ...]


LEARNER = ("tasks.engines.learning.learner", "tasks.engines.sampling.transformers", "sentence_transformers")
IMPORTED = ("flows.running.pieces", "flows.study.request", "tests.chaos.engines", "tests.mini")
SLEEPS = Work(study_of_sleeps, sleeps, True, 8, IMPORTED)
DEMO = Work(study_of_demo, experiment, False, 5, (*IMPORTED, *LEARNER))


def work(root: Path, piece: Piece, what: Work) -> None:
    """On a worker."""
    if what.made_up:
        Toolbox.generator = lambda *_: SleepingGenerator()  # type: ignore[method-assign,assignment]
        Toolbox.graders = lambda _: PlainGraders()  # type: ignore[method-assign,assignment,return-value]
    store = Store(root)
    make_piece(what.study(store), store, unheard, piece.ref, piece.shard, what.dag)


def alone(root: Path, workers: int, kills: int, rng: random.Random, what: Work) -> tuple[float, int]:
    """The same in one process."""
    store, began = Store(root), time.monotonic()
    store.prepare()
    execute(what.study(store), store, unheard, what.dag)
    return time.monotonic() - began, 0


def shared_out(root: Path, workers: int, kills: int, rng: random.Random, what: Work = SLEEPS) -> tuple[float, int]:
    """(wall seconds, processes killed). kills: so many pieces' first process at most, at a random moment of its work."""
    context, store = get_context("forkserver"), Store(root)
    context.set_forkserver_preload(list(what.preloaded))
    store.prepare()
    study, began = what.study(store), time.monotonic()
    lost, done, running = 0, set[str](), dict[str, tuple[Piece, BaseProcess, float]]()
    waiting = {piece.key: piece for piece in next_pieces(study, store, unheard, done, what.dag)}
    while waiting or running:
        while waiting and len(running) < workers:
            piece = waiting.pop(next(iter(waiting)))
            (process := context.Process(target=work, args=(root, piece, what))).start()
            killed = kills > 0 and rng.random() < 0.3
            kills -= killed
            running[piece.key] = piece, process, time.monotonic() + what.patience * rng.random() if killed else np.inf
        time.sleep(0.05)
        ended = [key for key, (_, process, until) in running.items() if _is_over(process, until)]
        for key in ended:
            piece, process, _ = running.pop(key)
            if process.exitcode:
                if process.exitcode > 0:
                    sys.exit(f"{piece.name} ended with exit code {process.exitcode}")
                lost += 1
                waiting[key] = piece
            else:
                done.add(key)
        if any(key in done for key in ended):
            found = next_pieces(study, store, unheard, done, what.dag)
            waiting |= {one.key: one for one in found if one.key not in running}
    execute(study, store, unheard, what.dag)
    return time.monotonic() - began, lost


def _is_over(process: BaseProcess, until: float) -> bool:
    if process.is_alive() and time.monotonic() > until:
        process.kill()
        process.join()
    return not process.is_alive()


def artifacts(root: Path) -> dict[str, pa.Table]:
    store = Store(root)
    return {str(ref): store.read(ref) for ref in store.refs()}


def paid(root: Path) -> tuple[int, int]:
    """(rollouts in the ledger, of them twice)."""
    book = Ledger(root)
    rows = [book.entries(account).keys.num_rows for account, _ in book.accounts()]
    return sum(rows), sum(book.duplicates(account) for account, _ in book.accounts())


def demo(folder: Path, kills: int, calibrated: Path | None) -> None:
    """One process, then eight workers, some of them killed: the same files in every artifact, the same rollouts."""
    print("| workers | killed | seconds |\n|---|---|---|", flush=True)
    first: tuple[dict[str, list[str]], str, tuple[int, int]] | None = None
    for workers in (1, 8):
        root = folder / str(workers)
        if calibrated:
            shutil.copytree(calibrated / "calibrations", root / "calibrations")
        make = alone if workers == 1 else shared_out
        seconds, lost = make(root, workers, kills, random.Random(workers), DEMO)
        found = hashes(root), report_text(root), paid(root)
        first = first or found
        if found != first or found[2][1]:
            sys.exit(f"{workers} workers: other artifacts, or a rollout was paid for twice; see {folder}")
        print(f"| {workers} | {lost} | {seconds:.0f} |", flush=True)
    print(f"{len(found[0])} artifacts and {found[2][0]} rollouts, the same in both")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("--calibrated", type=Path, help="a root whose calibration of the encoder is taken over")
    given = parser.parse_args()
    if given.demo:
        demo(Path(tempfile.mkdtemp(prefix="varband-workers-")), given.kills, given.calibrated)
        return
    expected: dict[str, pa.Table] = {}
    print("| workers | killed | seconds | of one worker |\n|---|---|---|---|")
    first = 0.0
    for workers, kills in [*((n, 0) for n in given.workers), (given.workers[-1], given.kills)]:
        with tempfile.TemporaryDirectory() as folder:
            seconds, lost = shared_out(Path(folder), workers, kills, random.Random(workers))
            found, first = artifacts(Path(folder)), first or seconds
            expected = expected or found
            if found != expected or paid(Path(folder))[1]:
                sys.exit(f"{workers} workers, {lost} killed: other artifacts, or a rollout was paid for twice")
            print(f"| {workers} | {lost} | {seconds:.0f} | {seconds / first:.2f} |", flush=True)


if __name__ == "__main__":
    main()
