"""Rollouts whose keys and values were rounded are others: sampled by an engine of their own, filed under their own name."""

from dataclasses import replace
from pathlib import Path

import pytest

from flows.running.fit import Machine, error_as_line, memory_lines
from flows.running.plan import plan, sampled_here
from flows.study.request import Request
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.ledger import Ledger
from tasks.engines.hardware import Hardware, check_kv_cache
from tasks.engines.toolbox import Toolbox
from tasks.sampling import sample_rollouts
from tests.stages.test_sampling import DRAW, Lab
from tests.stages.test_sampling import lab as lab

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
    study = Request(profile="demo", settings=settings).study(store, planning=True)
    asked, refused = [one.sampling for one in sampled_here(plan(study, store))], "kv_cache=fp8 needs vLLM"
    [said] = error_as_line(memory_lines(study, Machine.here(), asked), "this machine")
    assert said.startswith(f"this machine would refuse it: {refused}")
    with pytest.raises(UserError, match=refused):
        list(memory_lines(study, Machine.here(), asked))
