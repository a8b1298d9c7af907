"""What a manifest says of the machine that made an artifact."""

from __future__ import annotations

import subprocess
import sys

#: As where an engine is loaded beside the first stages: asked when a half of torch is there.
ASKED_MEANWHILE = """
import sys, threading
from storage.artifacts.provenance import provenance
from tasks.engines.hardware import device_name
loading = threading.Thread(target=__import__, args=("torch",))
loading.start()
while "torch" not in sys.modules:
    pass
assert not hasattr(sys.modules["torch"], "cuda"), "too late to show anything"
said = provenance(0.0, {}).hardware, device_name()
loading.join()
print(*said, sep="; ")
"""


def test_the_machine_is_named_while_another_thread_loads_torch() -> None:
    done = subprocess.run([sys.executable, "-c", ASKED_MEANWHILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "CPU cores" in done.stdout and "cpu" in done.stdout
