"""Which GPUs the sampling engine's processes see."""

import json
import os
import sys
from dataclasses import replace

import pytest

from tasks.engines.hardware import Hardware, children_see, gpu_bytes, num_gpus, visible_gpus
from tasks.engines.sampling.vllm import sampler_gpus
from tests import pynvml

APART = Hardware(device="cuda", engine_process="core", sampler_apart=True)


def test_the_samplers_gpus_follow_the_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6,7")
    assert sampler_gpus(APART) == ["5"]
    assert sampler_gpus(replace(APART, processes=2, tensor_parallel=2)) == ["6", "7"]
    assert APART.gpus == 2
    with children_see(sampler_gpus(APART)):
        assert visible_gpus() == ["5"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3,5,6,7"


H200, A4000, SHARED = ["H200", 10, 143_771, 0], ["A4000", 10, 16_376, 0], ["GB10", None, None, 0]


@pytest.mark.parametrize(
    ("seen", "gpus", "mebibytes"),
    [
        ("0,1", [H200, H200], 143_771),
        (None, [A4000, H200], 0),  # of several sizes
        ("MIG-3f", [H200], 0),
        (None, [["H200", 10, 143_771, 1]], 0),  # divided
        (None, [SHARED], 0),  # memory that it shares with the CPU
    ],
)
def test_memory_is_that_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, seen: str | None, gpus: list[list[object]], mebibytes: int
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    monkeypatch.setenv("GPUS", json.dumps(gpus))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert num_gpus() == len(gpus)
    if seen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    assert gpu_bytes() == mebibytes << 20
