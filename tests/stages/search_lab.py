"""A store, an engine and a few problems to search."""

import os
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from storage.artifacts.schemas import Pool, Searches, Splits
from storage.artifacts.store import Store
from tasks.domain.policies import BaseModel, Policy, Sampling, ServedAdapter
from tasks.domain.scaffolds import Scaffold
from tasks.domain.search.method import CERTAINTY, Method
from tasks.domain.search.registry import METHODS, method_named
from tasks.engines.grading.graders import Graders
from tasks.engines.hardware import Hardware
from tasks.engines.protocols import Completion, Request
from tasks.engines.rewarding import RewardModel
from tasks.engines.sampling.transformers import TransformersGenerator
from tasks.engines.toolbox import Toolbox
from tasks.pool import make_synthetic_pool, split_pool
from tasks.searches import search_problems
from tasks.stage import Session, session
from tests.tiny_model import write_tiny_model

POLICY = Policy(arm="panel", model=BaseModel(name="none", sha256="0" * 64))
DRAW = Sampling(max_tokens=8)
REWARD = BaseModel(name="a reward model", sha256="1" * 64)
#: What ends a step of the engine's completions.
END = "."
STEPS = ("beam:beams=2:expand=3", "dvts:trees=2:expand=2", "particles:particles=4", "mcts:simulations=5")
#: Every method that can be served, those of steps under every scorer.
SERVED = [name for name, method in METHODS.items() if not method.in_steps]
SERVED += [f"{name}:end={END}:by={by}" for name in STEPS for by in ("self", "likelihood", "process", "outcome")]
#: Each way of asking once; `make test-all` runs every method.
BRIEFLY = ("majority", "self_certainty", "rewarded", "debate", f"mcts:simulations=5:end={END}:by=process")
EVERY = [name if name in BRIEFLY else pytest.param(name, marks=pytest.mark.slow) for name in SERVED]


@cache
def reward_model() -> RewardModel:
    with TemporaryDirectory() as folder:
        return RewardModel(write_tiny_model(Path(folder), labels=1), Hardware())


@cache
def reader() -> TransformersGenerator:
    with TemporaryDirectory() as folder:
        return TransformersGenerator(write_tiny_model(Path(folder)), Hardware())


class FromPromptAndSeed:
    """An engine whose completion is a function of prompt and seed alone: one of four answers, after one to five tokens.
    A token is a character of the prompt, so that prompts grow with what they hold."""

    name, version, serving = "from-prompt-and-seed", "1", "none"

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.after = lambda: None

    def encode(self, scaffold: Scaffold, problem: str, begun: str = "") -> tuple[int, ...]:
        return tuple(map(ord, scaffold.prompt_text(problem) + begun))

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        if isinstance(requests, deque):
            while requests:
                yield from self.generate([requests.popleft()], adapter)
            return
        self.batches.append(["".join(map(chr, r.prompt_ids)) for r in requests])
        for request in requests:
            rng = np.random.default_rng([request.seed, sum(request.prompt_ids)])
            said, length = rng.choice(["3", "1/2", "0.5", "7"], p=[0.7, 0.1, 0.1, 0.1]), int(rng.integers(1, 6))
            begun = "".join(map(chr, request.prompt_ids)).partition("Assistant: ")[2]
            text = ("" if begun else "<mutipersonaDebate>") + f"thought {rng.integers(99)}"
            if END in request.decoding.stop and rng.random() < 0.4:
                text += END
            else:
                text += f"</mutipersonaDebate> <answer>{said}</answer>"
            finish = "stop" if length <= (most := request.decoding.max_tokens) else "length"
            length = min(length, most)
            yield Completion(request.key, text, [1] * length, -rng.random(length).astype(np.float32), finish)
        self.after()

    @property
    def sampled(self) -> int:
        return sum(map(len, self.batches))

    def close(self) -> None: ...


@dataclass
class Lab:
    store: Store
    toolbox: Toolbox
    engine: FromPromptAndSeed
    pool: Pool
    splits: Splits

    def search(self, method: Method | str, pool: Pool | None = None, **more: Any) -> list[dict[str, Any]]:
        return self.store.read(self.ref(method, pool, **more)).to_pylist()

    def ref(self, method: Method | str, pool: Pool | None = None, **more: Any) -> Searches:
        """In a session of its own, as a run has."""
        name = method if isinstance(method, str) else type(method).__name__
        chosen = method_named(method) if isinstance(method, str) else method
        given: dict[str, Any] = {"pool": pool or self.pool, "splits": self.splits, "name": name, "method": chosen}
        given |= {"policy": POLICY, "sampling": DRAW, "tokens": 10**6, "context": 10**6}
        given |= {"reward": REWARD if chosen.reward not in ("", CERTAINTY) else None}
        with session(Session(self.store, self.toolbox)):
            asked: dict[str, Any] = given | {"grader_version": self.toolbox.grader.version} | more
            return search_problems(**asked)

    def stopped_after(self, calls: int, method: str) -> tuple[list[dict[str, Any]], int]:
        """Search, stopped after every so many calls of the engine until it is done. Returns its rows and the stops."""
        stops = 0
        while True:
            left = iter(range(calls))
            self.engine.after = lambda left=left: None if next(left, None) is not None else _stop()
            try:
                return self.search(method), stops
            except InterruptedError:
                stops += 1


def _stop() -> None:
    raise InterruptedError


def a_lab(folder: Path, graders: Graders, batch_size: int | None = 16, engine: FromPromptAndSeed | None = None) -> Lab:
    store, engine = Store(folder / "store"), engine or FromPromptAndSeed()
    store.prepare()
    toolbox = Toolbox(Hardware(batch_size=batch_size), places={POLICY.model.sha256: folder, REWARD.sha256: folder})
    toolbox._open |= {("generator", name, str(folder)): engine for name in ("vllm", "transformers")}
    toolbox._open[("graders",)] = graders
    toolbox._open |= {("reward_model", REWARD.sha256): reward_model(), ("reader", POLICY.model.sha256): reader()}
    with session(Session(store, toolbox)):
        pool = make_synthetic_pool(per_source=2, seed=0)
        return Lab(store, toolbox, engine, pool, split_pool(pool=pool, heldout_per_source=0, seed=0))


@pytest.fixture
def lab(tmp_path: Path, graders: Graders) -> Lab:
    return a_lab(tmp_path, graders)


def main(folder: str, method: str) -> None:
    """A search that is killed in the middle of its second batch, as often as it is started, until none is left."""
    left = iter([True])
    with Graders() as graders:
        lab = a_lab(Path(folder), graders)
        lab.engine.after = lambda: None if next(left, False) else os.kill(os.getpid(), signal.SIGKILL)
        lab.search(method)


if __name__ == "__main__":
    main(*sys.argv[1:])
