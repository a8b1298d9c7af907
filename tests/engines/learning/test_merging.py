"""Adapters in the weights: unbiased where the type is coarse, exact where it is not, the same for learner and sampler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tasks.engines.adapter_files import read_served
from tasks.engines.learning.merging import merge_into, merged, rounded
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.learning.update import Clock, Updater
from tests.engines.conftest import random_rollouts, shifted
from tests.engines.learning.test_packed import CONFIG, grouped
from tests.tiny_model import write_tiny_mixture

HALF = Execution(device="cpu", dtype="bfloat16")
#: Grouped products of bfloat16 read rows of 16 bytes.
OF_EXPERTS = replace(CONFIG, lora_rank=8)


def test_halfway_goes_up_half_of_the_time_and_a_representable_value_stays() -> None:
    """Between 1 and 1 + 2**-7 bfloat16 has nothing; a quarter of the way goes up a quarter of the time."""
    draws = torch.Generator().manual_seed(0)
    up = rounded(torch.full((40_000,), 1 + 2**-9), torch.bfloat16, draws).float()
    assert set(up.tolist()) == {1.0, 1 + 2**-7}
    assert up.mean().item() == pytest.approx(1 + 2**-9, abs=4 * 2**-7 * (0.25 * 0.75 / 40_000) ** 0.5)
    down = rounded(torch.full((40_000,), -1 - 2**-9), torch.bfloat16, draws).float()
    assert down.mean().item() == pytest.approx(-1 - 2**-9, abs=4 * 2**-7 * (0.25 * 0.75 / 40_000) ** 0.5)
    grid = torch.randn(1000).bfloat16()
    assert torch.equal(rounded(grid.float(), torch.bfloat16, draws), grid)


@pytest.mark.parametrize("steps", [1, 10, 100])
def test_what_the_smallest_learning_rate_changes_arrives(steps: int) -> None:
    """B after `steps` of 5e-6 each: by rounding to nearest 1 % of one step arrives, here all of it within its noise."""
    draw = torch.Generator().manual_seed(steps)
    weight = (torch.randn(768, 768, generator=draw) * 0.02).bfloat16()
    a = (torch.rand(32, 768, generator=draw) * 2 - 1) / 768**0.5
    b = torch.randn(768, 32, generator=draw).sign() * 5e-6 * steps
    update = b.bfloat16().float() @ a.bfloat16().float()
    arrived = merged(weight, a, b, 1.0).float() - weight.float()
    share = ((arrived * update).sum() / update.square().sum()).item()
    # the variance of rounding d up with probability d / grid is at most d · grid, and the grid at most |w| / 128
    noise = ((update.abs() * weight.float().abs() / 128 * update.square()).sum().sqrt() / update.square().sum()).item()
    assert abs(share - 1) < 4 * noise
    nearest = (weight.float() + update).bfloat16().float() - weight.float()
    if steps == 1:
        assert (nearest * update).sum() / update.square().sum() < 0.05


def test_the_learner_multiplies_what_the_sampler_serves(tiny_base: Path, tmp_path: Path) -> None:
    policy = shifted(Policy(tiny_base, CONFIG, replace(HALF, merged=True)))
    policy.lora.export(tmp_path, tiny_base, torch.bfloat16)
    products = read_served(tmp_path)
    for name, (a, b) in products.pairs.items():
        module = policy.body.get_submodule(name.removeprefix("model."))
        assert torch.equal(module.weight, merged(module.base, a, b, products.scale(name))), name
        assert not torch.equal(module.weight, module.base)


@pytest.fixture(scope="module")
def tiny_mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_mixture(tmp_path_factory.mktemp("mixture"))


def test_a_mixture_s_experts_too(tiny_mixture: Path, tmp_path: Path) -> None:
    """Merged in pieces of the sampler's size, so that the noise of rounding is the same."""
    base = Policy(tiny_mixture, OF_EXPERTS, HALF)
    policy = shifted(Policy(tiny_mixture, OF_EXPERTS, replace(HALF, merged=True)))
    policy.lora.experts.finish()
    policy.lora.export(tmp_path, tiny_mixture, torch.bfloat16)
    products, seen = read_served(tmp_path), 0
    for name, module in policy.body.named_modules():
        if name.endswith(".experts"):
            plain = base.body.get_submodule(name)
            for weight, parts in (("gate_up_proj", ("gate_proj", "up_proj")), ("down_proj", ("down_proj",))):
                found, before = (getattr(m, weight).chunk(len(parts), dim=1) for m in (module, plain))
                for part, now, old in zip(parts, found, before, strict=True):
                    served = torch.empty_like(old)
                    merge_into(served, old, products, f"model.{name}.{part}")
                    assert torch.equal(now, served) and not torch.equal(now, old), (name, part)
                    seen += 1
    assert seen == 3 * policy.body.config.num_hidden_layers


def test_experts_are_merged_ahead_and_never_while_their_adapter_changes(tiny_mixture: Path) -> None:
    """What was begun beside the sampling is waited for by whatever changes A and B; the last ones are served."""
    groups = grouped(random_rollouts(("a", "b"), 4, seed=2))
    policies = [shifted(Policy(tiny_mixture, OF_EXPERTS, replace(HALF, merged=True))) for _ in range(2)]
    found = []
    for ahead, policy in zip((True, False), policies, strict=True):
        updater = Updater(policy, OF_EXPERTS, 8192)
        for _ in range(3):
            if ahead:
                policy.lora.experts.begin()
            updater.update(groups, Clock())
            with policy.lora.showing(torch.zeros_like(policy.lora.work)):
                policy.lora.experts.begin()
        policy.lora.experts.finish()
        found.append([m.down_proj.clone() for n, m in policy.body.named_modules() if n.endswith(".experts")])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


@pytest.mark.parametrize("base", ["tiny_base", "tiny_mixture"])
def test_gradients_are_those_of_the_adapter_beside_the_weight(base: str, request: pytest.FixtureRequest) -> None:
    """In float32 nothing is rounded: the same log-probs, the same gradient."""
    folder: Path = request.getfixturevalue(base)
    groups = grouped(random_rollouts(("a", "b"), 4, seed=2))
    grads = []
    for merge in (False, True):
        policy = shifted(Policy(folder, CONFIG, Execution(device="cpu", merged=merge)))
        Updater(policy, CONFIG, 8192).gradient(groups, Clock())
        grads.append(policy.lora.grad.clone())
    assert torch.linalg.vector_norm(grads[1] - grads[0]) < 1e-5 * torch.linalg.vector_norm(grads[0])
