"""An engine in processes of its own ends with the process that uses it, however that one ends."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

DEMO = Path(__file__).resolve().parents[3] / "models" / "demo"
USER = """
import sys, time
from pathlib import Path
from tasks.engines.hardware import Hardware
from tasks.engines.sampling.vllm import VllmGenerator

if __name__ == "__main__":
    hardware = Hardware(max_model_len=256, max_num_seqs=8, threads=1, engine_process=sys.argv[2])
    engine = VllmGenerator(Path(sys.argv[1]), hardware, 0)
    print("up", flush=True)
    time.sleep(600)
"""


def started(folder: Path, where: str) -> subprocess.Popen[bytes]:
    program = folder / "user.py"
    program.write_text(USER)
    root = str(DEMO.parents[1])
    command = [sys.executable, str(program), str(DEMO), where]
    return subprocess.Popen(command, cwd=root, env=os.environ | {"PYTHONPATH": root}, stdout=subprocess.PIPE)


def processes_of(user: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(user.pid).children(recursive=True)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["core", "both"])
def test_nothing_of_it_is_left_when_its_user_is_killed_while_it_starts(tmp_path: Path, where: str) -> None:
    """Stopped from outside before the engine is up: the process that holds the model has its name and reads weights."""
    holds = "VLLM::EngineCore" if where == "core" else "VLLM::Worker"
    with started(tmp_path, where) as user:
        while not any(p.name().startswith(holds) for p in processes_of(user)):
            assert user.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        engine = processes_of(user)
        user.kill()
    _, alive = psutil.wait_procs(engine, timeout=60)
    assert alive == []
