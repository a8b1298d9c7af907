"""The remote engine against a real vLLM server, which is killed on the way."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

from tasks.engines.protocols import Completion
from tests.engines.sampling.test_openai import engine, requests


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_vllm(model: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    words += f"--host 127.0.0.1 --port {port} --dtype float32 --enforce-eager --max-model-len 512".split()
    words += f"--max-num-seqs 16 --logprobs-mode processed_logprobs --kv-cache-memory-bytes {64 << 20}".split()
    silent = {"OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
    env = {**os.environ, **silent}
    with log.open("ab") as out:
        return subprocess.Popen(words, env=env, stdout=out, stderr=out, start_new_session=True)


def wait_until_up(port: int, process: subprocess.Popen[bytes], log: Path, limit: float = 240) -> None:
    until = time.monotonic() + limit
    while time.monotonic() < until and process.poll() is None:
        try:
            with urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"the vLLM server did not come up:\n{log.read_text()[-3000:]}")


def kill(process: subprocess.Popen[bytes], how: int = signal.SIGKILL) -> None:
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        return
    process.wait(30)


@pytest.mark.slow
def test_a_real_server_gives_log_probs_of_the_policy_and_may_be_killed(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log-probs agree with transformers on the same tokens; what had finished before is not asked for again."""
    import torch
    from transformers import AutoModelForCausalLM

    monkeypatch.setenv("VARBAND_OPENAI_PATIENCE", "900")
    port, log = free_port(), tmp_path / "vllm.log"
    server = start_vllm(tiny, port, log)
    try:
        wait_until_up(port, server, log)
        sampler = engine(tiny, f"http://127.0.0.1:{port}/v1", served="")
        assert sampler.version != "unknown"
        got: dict[int, Completion] = {}
        asked = requests(48, max_tokens=96)
        for completion in sampler.generate(asked, None):
            assert completion.key not in got
            got[completion.key] = completion
            if len(got) == 10:
                kill(server)
                server = start_vllm(tiny, port, log)
        assert sorted(got) == list(range(48))
    finally:
        kill(server)
    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    for c in list(got.values())[:6] + list(got.values())[-6:]:
        ids = [*asked[c.key].prompt_ids, *c.token_ids]
        with torch.no_grad():
            logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
        n = len(asked[c.key].prompt_ids)
        expected = logprobs[range(n - 1, len(ids) - 1), c.token_ids].numpy()
        np.testing.assert_allclose(c.logprobs_T, expected, atol=2e-4)
