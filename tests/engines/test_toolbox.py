"""An engine that is begun is the one that is sampled with, and none is left behind."""

import os
import signal
import subprocess
import sys
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


def test_one_that_nobody_asked_for_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    tools, go, made = begun(monkeypatch)
    tools.begin_generator("m", 16)
    go.set()
    tools.close()
    assert made[0].closed


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


def test_an_engine_inside_this_process_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    tools, go, made = begun(monkeypatch, "inside")
    go.set()
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


def test_a_model_that_is_elsewhere_is_missed_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger may have every rollout that is asked for."""
    tools, _, _ = begun(monkeypatch)
    tools.begin_generator("elsewhere", 16)
    with pytest.raises(UserError, match="is not on this machine"):
        tools.generator("elsewhere", 16)
    tools.close()


def test_the_learner_waits_for_an_engine_that_starts_on_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    tools, go, made = begun(monkeypatch)
    tools.begin_generator("m", 16)
    threading.Timer(0.2, go.set).start()
    tools.wait_for_begun()
    assert len(made) == 1
    tools.close()


#: An engine and a learner as in a resumed run: one in a thread, both import transformers' names as they need them.
AT_ONCE = """
import sys
from pathlib import Path
from tasks.engines.hardware import Hardware
from tasks.engines.toolbox import Toolbox

def start(*_):
    assert {"transformers", "transformers.models.auto.modeling_auto", "transformers.models.qwen3.modeling_qwen3"} <= {*sys.modules}
    from transformers import AutoConfig, AutoModelForCausalLM
    class Engine: ...
    return Engine()

Toolbox._sampler = start
tools = Toolbox(Hardware(engine="vllm", engine_process="both"), {"m": Path(sys.argv[1])})
tools.begin_generator("m", 16)
from transformers import AutoConfig, AutoModelForCausalLM
tools.generator("m", 16)
tools.close()
"""


@pytest.mark.slow
def test_threads_find_libraries_imported(tiny_base: Path) -> None:
    """In a process of its own: in this one they are imported already."""
    done = subprocess.run([sys.executable, "-c", AT_ONCE, str(tiny_base)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
