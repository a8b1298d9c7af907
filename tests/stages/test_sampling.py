"""Sampling: shards that several workers enter, what the engine is never asked. Each rollout is entered in the ledger once."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flows.running.fit import Machine, error_as_line, memory_lines
from flows.running.plan import plan, sampled_here
from flows.study.request import Request as StudyRequest
from storage.artifacts.manifest import provenance, recipe_of
from storage.artifacts.schemas import Pool, Rollouts, Splits, Training
from storage.artifacts.store import Payload, Store
from storage.errors import Parked, UserError
from storage.ledger import Ledger
from tasks.domain.policies import BaseModel, Policy, Sampling, ServedAdapter
from tasks.domain.scaffolds import PANEL, Example, Scaffold
from tasks.engines.hardware import Hardware, check_kv_cache
from tasks.engines.protocols import Completion, Request
from tasks.engines.toolbox import Toolbox
from tasks.pool import make_synthetic_pool, split_pool
from tasks.rollouts import account_of
from tasks.rollouts import served as adapter_of
from tasks.sampling import enter_shard, open_shards, sample_rollouts
from tasks.stage import Session, Stage, Step, session

POLICY, DRAW, GROUP = Policy(arm="panel", model=BaseModel(name="none", sha256="0" * 64)), Sampling(max_tokens=8), 8


class FromTheSeed:
    """An engine whose completion is a function of the request's seed alone, as an engine's should be. Every third
    problem is never answered, the others now and then: with the gold, which stands in the prompt's ids."""

    name, version, serving = "from-the-seed", "1", "none"

    def __init__(self) -> None:
        self.golds, self.sampled = dict[str, str](), 0

    def encode(self, scaffold: Scaffold, problem: str, begun: str = "") -> tuple[int, ...]:
        return ([*self.golds].index(problem),)

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        for request in requests:
            self.sampled += 1
            (place,) = request.prompt_ids
            right = place % 3 and np.random.default_rng(request.seed).random() < 0.5
            said = list(self.golds.values())[place] if right else "-12345"
            text = f"<mutipersonaDebate>a</mutipersonaDebate> <answer>{said}</answer>"
            yield Completion(request.key, text, [1, 2], np.zeros(2, np.float32), "stop")

    def close(self) -> None: ...


@dataclass
class Lab:
    store: Store
    toolbox: Toolbox
    engine: FromTheSeed
    pool: Pool
    splits: Splits

    def sample(self, stage: Stage[..., Rollouts], group_size: int = GROUP, **more: Any) -> Rollouts:
        given = {"pool": self.pool, "splits": self.splits, "policy": POLICY, "sampling": DRAW, "group_size": group_size}
        return stage(**(given | more))


def a_lab(folder: Path, engine: FromTheSeed, model: BaseModel = POLICY.model, per_source: int = 3) -> Iterator[Lab]:
    """With made-up problems; the engine's golds are theirs."""
    store = Store(folder / "store")
    store.prepare()
    toolbox = Toolbox(places={model.sha256: folder})
    toolbox._open |= {("generator", name, str(folder)): engine for name in ("vllm", "transformers")}
    with session(Session(store, toolbox)):
        pool = make_synthetic_pool(per_source=per_source, seed=0)
        problems = store.read(pool)
        engine.golds = dict(zip(problems["problem"].to_pylist(), problems["gold"].to_pylist(), strict=True))
        yield Lab(store, toolbox, engine, pool, split_pool(pool=pool, heldout_per_source=0, seed=0))
        toolbox.close()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    yield from a_lab(tmp_path, FromTheSeed())


def test_an_adapter_is_served_on_the_base_that_it_was_trained_on(lab: Lab) -> None:
    training = Training.of("a" * 16)
    recipe = recipe_of("train_adapter", 3, {"start": replace(POLICY, model=BaseModel(name="other", sha256="1" * 64))})
    lab.store.write(training, Payload(Training.schema.empty_table()), recipe, provenance(0.0))
    (lab.store.files(training) / "step-0001").mkdir(parents=True)
    served = replace(POLICY, adapter=str(training), adapter_step=1, step=1)
    with pytest.raises(UserError, match=r"the policy of panel has the base model none .* was trained on other"):
        lab.sample(sample_rollouts, 1, policy=served, training=training)
    assert not lab.engine.sampled
    assert adapter_of(replace(served, model=BaseModel(name="renamed", sha256="1" * 64)), training)


def test_a_problem_that_its_own_prompt_solves_is_never_asked(lab: Lab) -> None:
    """Few-shot examples are often taken from the set that is then asked."""
    problem = lab.store.read(lab.pool).to_pylist()[4]["problem"]
    example = Example(problem=problem.upper().replace(" ", "\n", 1), trace="so", answer="7")
    shows = replace(POLICY, scaffold=replace(PANEL, name="shown", examples=(example,)))
    with pytest.raises(UserError, match=r"scaffold shown: its prompt contains .* and may give away its gold"):
        lab.sample(sample_rollouts, 1, policy=shows)
    assert not lab.engine.sampled


# Shards: whoever samples them, in whatever order, the gathered artifact has the rows of one worker.

BATCH, OF_A_SHARD = 12, 48


def planned(lab: Lab, root: Path) -> tuple[Step, Session]:
    """The step of a stage in a store of its own, which has the problems of the lab's."""
    for kind in ("pool", "splits"):
        if not (root / kind).exists():
            root.mkdir(exist_ok=True)
            (root / kind).symlink_to(lab.store.root / kind)
    lab.toolbox.hardware = lab.toolbox.hardware.__class__(batch_size=BATCH)
    with session(Session(Store(root), lab.toolbox, planning=True)) as planning:
        lab.sample(sample_rollouts)
    Store(root).prepare()
    return planning.steps[0], Session(Store(root), lab.toolbox)


def whole(lab: Lab, root: Path) -> pa.Table:
    step, alone = planned(lab, root)
    with session(alone):
        alone.ensure(step)
    return alone.store.read(step.ref)


def test_gathered_rows_are_those_of_one_worker(lab: Lab, tmp_path: Path) -> None:
    expected = whole(lab, tmp_path / "alone")
    step, worker = planned(lab, tmp_path / "shared")
    with session(worker):
        shards = list(open_shards(step, OF_A_SHARD, set()))
        assert len(shards) > 1
        for shard in random.Random(0).sample(shards, len(shards)):
            with worker.at_work_on(step):
                enter_shard(step, OF_A_SHARD, shard)
        paid = lab.engine.sampled
        assert list(open_shards(step, OF_A_SHARD, set())) == []
        worker.ensure(step)
    assert lab.engine.sampled == paid, "gathering sampled"
    assert worker.store.read(step.ref).equals(expected)
    assert Ledger(worker.store.root).duplicates(account_of(POLICY, DRAW)) == 0


def test_a_worker_that_ends_half_way_leaves_its_shard_open(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts the run again asks for that shard and those that nobody began."""
    step, worker = planned(lab, tmp_path / "shared")
    generate, began = lab.engine.generate, lab.engine.sampled

    def ends(*given: object) -> object:
        if lab.engine.sampled - began >= BATCH:
            raise Parked("the machine is wanted elsewhere")
        return generate(*given)  # type: ignore[arg-type]

    with session(worker), worker.at_work_on(step):
        first, *others = open_shards(step, OF_A_SHARD, set())
        monkeypatch.setattr(lab.engine, "generate", ends)
        with pytest.raises(Parked):
            enter_shard(step, OF_A_SHARD, first)
        monkeypatch.setattr(lab.engine, "generate", generate)
        assert list(open_shards(step, OF_A_SHARD, set())) == [first, *others]
        enter_shard(step, OF_A_SHARD, first)
        assert list(open_shards(step, OF_A_SHARD, set())) == others
        entries = Ledger(worker.store.root).entries(account_of(POLICY, DRAW))
    assert lab.engine.sampled - began == entries.keys.num_rows, "something was paid for and is not there"
    assert Ledger(worker.store.root).duplicates(account_of(POLICY, DRAW)) == 0, "a batch was paid for twice"


# Rollouts whose keys and values were rounded are others: sampled by an engine of their own, filed under their own name.


ROUNDED = replace(DRAW, kv_cache="fp8")


def test_rollouts_of_one_cache_are_not_those_of_another(lab: Lab) -> None:
    lab.toolbox._open |= {(*key, "fp8"): engine for key, engine in lab.toolbox._open.items() if key[0] == "generator"}
    full, rounded = (lab.sample(sample_rollouts, 2, sampling=one) for one in (DRAW, ROUNDED))
    rows = lab.store.manifest(full).rows
    assert full != rounded and lab.engine.sampled == 2 * rows
    assert {about.get("kv_cache") for _, about in Ledger(lab.store.root).accounts()} == {None, "fp8"}


def test_each_cache_has_an_engine_and_one_is_open_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine:
        closed = False

        def close(self) -> None:
            self.closed = True

    made = [Engine(), Engine()]
    started = iter(made)
    monkeypatch.setattr(Toolbox, "_sampler", lambda *_: next(started))
    tools = Toolbox(Hardware(engine="vllm"), {"m": Path("model")})
    assert tools.generator("m", 16, "fp8") is made[0] and tools.samples("m", "fp8") and not tools.samples("m")
    assert tools.generator("m", 16) is made[1] and made[0].closed and not tools.samples("m", "fp8")
    tools.close()
    assert made[1].closed


@pytest.mark.parametrize(
    ("engine", "device"), [("auto", "auto"), ("vllm", "cpu"), ("transformers", "cuda"), ("openai", "cuda")]
)
def test_only_vllm_on_a_gpu_stores_fp8(engine: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_kv_cache("full", engine, device)
    check_kv_cache("fp8", "vllm", "cuda")
    check_kv_cache("fp8", "auto", "cuda")
    with pytest.raises(UserError, match=r"kv_cache=fp8 needs vLLM on a GPU: set"):
        check_kv_cache("fp8", engine, device)
    monkeypatch.setattr("tasks.engines.toolbox.engine_name", lambda wanted: "transformers")
    with pytest.raises(UserError, match="kv_cache=fp8 needs vLLM"):  # where vLLM is not installed
        Toolbox(Hardware(device="cuda"), {"m": Path("model")}).generator("m", 0, "fp8")


def test_a_run_is_refused_before_anything_is_paid_and_its_plan_says_so(tmp_path: Path) -> None:
    """On a CPU, which the demo's settings allow."""
    settings, store = ("screening.sampling.kv_cache=fp8", "arms=panel"), Store(tmp_path)
    store.prepare()
    study = StudyRequest(profile="demo", settings=settings).study(store, planning=True)
    asked, refused = [one.sampling for one in sampled_here(plan(study, store))], "kv_cache=fp8 needs vLLM"
    [said] = error_as_line(memory_lines(study, Machine.here(), asked), "this machine")
    assert said.startswith(f"this machine would refuse it: {refused}")
    with pytest.raises(UserError, match=refused):
        list(memory_lines(study, Machine.here(), asked))
