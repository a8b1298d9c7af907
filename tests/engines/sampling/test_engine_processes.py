"""An engine in processes of its own ends with the process that uses it, however that one ends."""

import os
import subprocess
import sys
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


@pytest.mark.slow
@pytest.mark.parametrize("where", ["core", "worker", "both"])
def test_nothing_of_it_is_left_when_its_user_is_killed(tmp_path: Path, where: str) -> None:
    program = tmp_path / "user.py"
    program.write_text(USER)
    command = [sys.executable, str(program), str(DEMO), where]
    root = str(DEMO.parents[1])
    with subprocess.Popen(command, cwd=root, env=os.environ | {"PYTHONPATH": root}, stdout=subprocess.PIPE) as user:
        assert user.stdout is not None
        assert any(line == b"up\n" for line in user.stdout)
        engine = psutil.Process(user.pid).children(recursive=True)
        assert any("VLLM" in p.name() for p in engine)
        user.kill()
    _, alive = psutil.wait_procs(engine, timeout=60)
    assert alive == []
