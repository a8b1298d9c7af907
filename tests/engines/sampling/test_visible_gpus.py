"""Which GPUs the sampling engine's processes see."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.engines.hardware import Hardware, children_see, gpu_bytes, num_gpus, visible_gpus
from tasks.engines.sampling.vllm import sampler_gpus

APART = Hardware(device="cuda", engine_process="core", sampler_apart=True)


def test_the_samplers_gpus_follow_the_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6,7")
    assert sampler_gpus(APART) == ["5"]
    assert sampler_gpus(replace(APART, processes=2, tensor_parallel=2)) == ["6", "7"]
    assert APART.gpus == 2
    with children_see(sampler_gpus(APART)):
        assert visible_gpus() == ["5"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3,5,6,7"


@pytest.mark.parametrize(
    ("seen", "number"),
    [("0,1", 2), (" 0, 1 ", 2), ("0,1,", 2), ("-1", 0), ("0,-1,1", 1), ("", 0), ("none", 0), ("GPU-8932f937,MIG-1", 2)],
)
def test_names_are_read_as_the_driver_reads_them(monkeypatch: pytest.MonkeyPatch, seen: str, number: int) -> None:
    """Up to the first that is none: -1 hides what follows, and is no GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    assert num_gpus() == len(visible_gpus()) == number


@pytest.mark.parametrize(
    ("seen", "lines", "mebibytes"),
    [
        ("0,1", "143771, Disabled\n143771, Disabled", 143_771),
        (None, "16376, [N/A]\n143771, Disabled", 0),  # GPUs of several sizes
        ("MIG-3f", "143771, Disabled", 0),
        (None, "[N/A], [N/A]", 0),
    ],
)
def test_memory_is_that_of_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: str | None, lines: str, mebibytes: int
) -> None:
    (tool := tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("tasks.engines.hardware.Path.glob", lambda *_: [Path("nvidia0"), Path("nvidia1")])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if seen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    assert gpu_bytes() == mebibytes << 20
