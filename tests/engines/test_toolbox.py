"""An engine that is begun is the one that is sampled with, and none is left behind."""

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from storage.errors import Parked, UserError
from storage.stopping import stopped_by_signals
from tasks.engines import toolbox
from tasks.engines.hardware import Hardware
from tasks.engines.toolbox import Toolbox


class Engine:
    closed = False

    def close(self) -> None:
        self.closed = True


def begun(monkeypatch: pytest.MonkeyPatch, where: str = "core") -> tuple[Toolbox, threading.Event, list[Engine]]:
    """A toolbox whose engine starts once the event is set, and the engines that were started."""
    go, made = threading.Event(), []

    def start(self: Toolbox, model_sha256: str, lora_rank: int, kv_cache: str) -> Engine:
        assert go.wait(30)
        if lora_rank == 13:
            raise UserError("no memory")
        made.append(Engine())
        return made[-1]

    monkeypatch.setattr(Toolbox, "_sampler", start)
    monkeypatch.setattr(toolbox, "import_before_threads", lambda _: None)
    return Toolbox(Hardware(engine="vllm", engine_process=where), {"m": Path("model")}), go, made  # type: ignore[arg-type]


def test_the_engine_that_was_begun_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    tools, go, made = begun(monkeypatch)
    tools.begin_generator("m", 16)
    tools.begin_generator("m", 16)  # twice is once
    assert made == []  # the caller goes on meanwhile
    go.set()
    assert tools.generator("m", 16) is made[0] and tools.generator("m", 16) is made[0]
    tools.begin_generator("m", 16)
    tools.close()
    assert len(made) == 1 and made[0].closed


def test_its_error_is_said_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    tools, go, _ = begun(monkeypatch)
    tools.begin_generator("m", 13)
    go.set()
    with pytest.raises(UserError, match="no memory"):
        tools.generator("m", 13)
    tools.begin_generator("m", 13)
    tools.close()  # and nowhere else


def test_no_engine_is_begun_beside_a_learner_of_several_processes_with_other_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While it starts, this process tells all that it starts which GPUs to see."""
    tools, go, made = begun(monkeypatch)
    go.set()
    tools.hardware = replace(tools.hardware, sampler_apart=True, processes=2)
    tools.begin_generator("m", 16)
    tools.close()
    assert made == []


def test_one_that_is_waited_for_when_the_run_is_stopped_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    tools, go, made = begun(monkeypatch)
    tools.begin_generator("m", 16)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(Parked), stopped_by_signals():
        tools.generator("m", 16)
    go.set()
    tools.close()
    assert len(made) == 1 and made[0].closed
