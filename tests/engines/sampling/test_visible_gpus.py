"""Which GPUs the sampling engine's processes see."""

import os
from dataclasses import replace

import pytest

from storage.errors import UserError
from tasks.engines.hardware import Hardware
from tasks.engines.sampling.settings import sampler_gpus
from tasks.engines.visible_gpus import children_see, visible_gpus

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
