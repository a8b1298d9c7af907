"""Which GPUs the sampling engine's processes see."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from storage.errors import UserError
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


def test_unless_asked_for_both_have_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    together = replace(APART, sampler_apart=False, tensor_parallel=2)
    assert sampler_gpus(together) == [] and together.gpus == 2
    with children_see(sampler_gpus(together)):
        assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(UserError, match=r"an arm takes 2 GPUs .* and 1 is here"):
        sampler_gpus(APART)
    with pytest.raises(UserError, match=r"hardware\.engine_process=core"):
        replace(APART, engine_process="inside")


@pytest.mark.parametrize(
    ("seen", "number"),
    [("0,1", 2), (" 0, 1 ", 2), ("0,1,", 2), ("-1", 0), ("0,-1,1", 1), ("", 0), ("none", 0), ("GPU-8932f937,MIG-1", 2)],
)
def test_names_are_read_as_the_driver_reads_them(monkeypatch: pytest.MonkeyPatch, seen: str, number: int) -> None:
    """Up to the first that is none: -1 hides what follows, and is no GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    assert num_gpus() == len(visible_gpus()) == number


H200 = "GPU-aa, 143771, Disabled"
SMALL = "GPU-bb, 16376, [N/A]"
BOTH = f"0, {SMALL}\n1, {H200}"


@pytest.mark.parametrize(
    ("seen", "order", "said", "mebibytes"),
    [
        ("0,1", None, f"0, {H200}\n1, {H200}", 143_771),
        (None, None, BOTH, 16_376),  # all are seen, and the smallest counts
        ("GPU-aa", None, BOTH, 143_771),  # not that of a card that is not seen
        ("GPU-a", None, BOTH, 143_771),
        ("1", "PCI_BUS_ID", BOTH, 143_771),
        ("0", "PCI_BUS_ID", BOTH, 16_376),
        ("0", None, BOTH, 0),  # the fastest one, whichever that is
        ("MIG-3f", None, f"0, {H200}", 0),  # a part of a GPU
        (None, None, "0, GPU-aa, 143771, Enabled", 0),
        (None, None, "0, GPU-aa, [N/A], [N/A]", 0),  # memory that is shared with the host
        ("0", None, "", 0),
        ("0", None, "No devices were found", 0),
    ],
)
def test_memory_is_that_of_the_gpus_that_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: str | None, order: str | None, said: str, mebibytes: int
) -> None:
    (tool := tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("tasks.engines.hardware.Path.glob", lambda *_: [Path("nvidia0"), Path("nvidia1")])
    for name, value in (("CUDA_VISIBLE_DEVICES", seen), ("CUDA_DEVICE_ORDER", order)):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    assert gpu_bytes() == mebibytes << 20


def test_a_driver_without_its_tool_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_bytes() == 0
    (tool := tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    tool.chmod(0o755)
    assert gpu_bytes() == 0
