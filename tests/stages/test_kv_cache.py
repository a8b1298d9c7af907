"""Rollouts whose keys and values were rounded are others: sampled by an engine of their own, filed under their own name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flows.running.plan import Planned, plan, to_sample
from flows.study.checks import faults_of
from flows.study.memory import Machine, check_caches, memory_lines
from flows.study.profiles import DEMO, PAPER
from flows.study.request import Request
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.ledger import Ledger
from storage.reading.catalog import shards_of
from tasks.domain.policies import KVCache
from tasks.engines.hardware import Hardware, check_kv_cache
from tasks.engines.sampling.vllm import on_gpu
from tasks.engines.toolbox import Toolbox
from tasks.sampling import sample_rollouts
from tasks.stage import Session, session
from tests.hollow import hollow_weights
from tests.stages.test_sampling import DRAW, Lab
from tests.stages.test_sampling import lab as lab

ROUNDED = replace(DRAW, kv_cache="fp8")


def test_a_full_cache_is_no_new_name() -> None:
    assert DRAW.kv_cache == "full" and "kv_cache" not in DRAW.identity(())
    assert ROUNDED.identity(()) == DRAW.identity(()) | {"kv_cache": "fp8"}


def test_rollouts_of_one_cache_are_not_those_of_another(lab: Lab) -> None:
    lab.toolbox._open |= {(*key, "fp8"): engine for key, engine in lab.toolbox._open.items() if key[0] == "generator"}
    full, rounded = (lab.sample(sample_rollouts, 2, sampling=one) for one in (DRAW, ROUNDED))
    rows = lab.store.manifest(full).rows
    assert full != rounded and lab.engine.sampled == 2 * rows
    own, other = ([*shards_of(lab.store, [ref])] for ref in (full, rounded))
    assert own and other and not {*own} & {*other}
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
    with pytest.raises(UserError, match=r"kv_cache=fp8 is how vLLM stores keys and values on a GPU: set"):
        check_kv_cache("fp8", engine, device)
    monkeypatch.setattr("tasks.engines.toolbox.engine_name", lambda wanted: "transformers")
    with pytest.raises(UserError, match="kv_cache=fp8 is how vLLM"):  # where vLLM is not installed
        Toolbox(Hardware(device="cuda"), {"m": Path("model")}).generator("m", 0, "fp8")


def test_a_study_may_ask_for_it_where_nothing_is_trained_on_it() -> None:
    def asked(kv_cache: KVCache, *names: str) -> list[str]:
        changed = {
            name: replace(getattr(PAPER, name), sampling=replace(getattr(PAPER, name).sampling, kv_cache=kv_cache))
            for name in names
        }
        return [fault.sentence for fault in faults_of(replace(PAPER, **changed))]

    assert asked("full", "evaluation") == asked("fp8", "screening", "final") == []
    assert any("evaluation.sampling.kv_cache is fp8" in said for said in asked("fp8", "evaluation"))
    # no_panel is evaluated with the adapter of panel, whose lessons and evaluations are sampled here
    evaluated = replace(DEMO, arms=("no_panel",), evaluation=replace(DEMO.evaluation, sampling=ROUNDED))
    assert any("evaluation.sampling.kv_cache is fp8" in fault.sentence for fault in faults_of(evaluated))
    lesson = replace(PAPER.lessons[0], arms=("panel",), rollouts=ROUNDED)
    taught = replace(PAPER, arms=("no_panel",), lessons=(lesson,))
    said = next(fault.sentence for fault in faults_of(taught) if "kv_cache" in fault.sentence)
    assert said.startswith(f"lessons.{lesson.name}.rollouts.kv_cache is fp8")
    assert f"; set lessons.{lesson.name}.rollouts.kv_cache=full" in said


def test_a_run_is_refused_before_anything_is_paid_and_its_plan_says_so(tmp_path: Path) -> None:
    """On a CPU, which the demo's settings allow. What is there already needs no engine: it is no fault of the study."""
    settings, store = ("screening.sampling.kv_cache=fp8", "arms=panel"), Store(tmp_path)
    store.prepare()
    study = Request(profile="demo", settings=settings).study(store, planning=True)
    asked, refused = [*to_sample(plan(study, store))], "kv_cache=fp8 is how vLLM"
    [said] = memory_lines(study, Machine.here(), asked)
    assert said.startswith(f"this machine would refuse it: {refused}")
    with pytest.raises(UserError, match=refused):
        check_caches(study.profile.hardware, asked)
    assert memory_lines(study, Machine.here(), to_sample(replace(p, reused=True) for p in plan(study, store))) == []


def test_what_this_machine_cannot_store_is_refused_before_anything_is_paid(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at is what is to be sampled here alone: a machine that only embeds needs no such GPU."""
    planning, on_gpu = Session(lab.store, lab.toolbox, planning=True), Hardware(device="cuda")
    with session(planning):
        lab.sample(sample_rollouts, 2, sampling=ROUNDED)
    planned = [Planned(step, reused=False) for step in planning.steps]
    monkeypatch.setattr("flows.study.memory.engine_name", lambda wanted: "vllm")
    check_caches(on_gpu, to_sample(planned))
    monkeypatch.setattr("flows.study.memory.engine_name", lambda wanted: "transformers")
    check_caches(on_gpu, to_sample([replace(p, left=True) for p in planned]))
    check_caches(on_gpu, to_sample([replace(p, reused=True) for p in planned]))
    with pytest.raises(UserError, match="kv_cache=fp8 is how vLLM"):
        check_caches(on_gpu, to_sample(planned))


def test_vllm_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hollow_weights(tmp_path / "model.safetensors", 0)
    shape = '{"hidden_size": 64, "intermediate_size": 8, "num_attention_heads": 1, "num_hidden_layers": 1}'
    (tmp_path / "config.json").write_text(shape)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a GPU")
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (4 << 30, 4 << 30))
    monkeypatch.setattr("tasks.engines.sampling.vllm.keep_compiled", lambda gpu: tmp_path)
    hardware = Hardware(memory_fraction=0.9, dtype="bfloat16", graphs_up_to=1)
    assert on_gpu(tmp_path, hardware, False, 0)["kv_cache_dtype"] == "auto"
    assert on_gpu(tmp_path, hardware, False, 0, "fp8")["kv_cache_dtype"] == "fp8"
