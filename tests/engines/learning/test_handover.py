"""An adapter handed over to a merging sampler is the adapter that PEFT's file holds, a mixture's experts included."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from storage.errors import UserError
from tasks.domain.grpo.learner_config import ALL_LINEAR, LearnerConfig
from tasks.domain.grpo.steps import StepPlan, TrainRollout
from tasks.domain.policies import ServedAdapter
from tasks.engines import adapter_files
from tasks.engines.adapter_files import SERVED, read_served, served_name
from tasks.engines.learning.merging import merge_into, merged
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.learning.update import Clock, Updater
from tests.engines.conftest import random_rollouts, shifted
from tests.engines.learning.test_learner import run, weights
from tests.engines.learning.test_packed import CONFIG as PACKED
from tests.engines.learning.test_packed import grouped
from tests.tiny_model import adapter

CONFIG = LearnerConfig(
    steps=5, groups_per_step=2, group_size=4, learning_rate=1e-3, lora_rank=8, lora_alpha=16, eval_every=3
)
STACKED = Execution(device="cpu", stacked_adapters=True)


@pytest.fixture(scope="module")
def policy(tiny_mixture: Path) -> Policy:
    return shifted(Policy(tiny_mixture, CONFIG, Execution(device="cpu")))


def test_either_file_says_the_same_and_each_expert_is_merged_with_its_own(policy: Policy, tmp_path: Path) -> None:
    policy.lora.export(tmp_path / "peft", policy.base, torch.float32)
    policy.lora.hand_over(tmp_path / "stacked")
    named, stacked = (read_served(tmp_path / way) for way in ("peft", "stacked"))
    assert named.alpha == stacked.alpha == 16 and named.pairs.keys() == stacked.pairs.keys()
    assert sum(".experts." in name for name in stacked.pairs) == 3 * policy.body.config.num_hidden_layers
    assert {name.rsplit(".", 1)[-1] for name in stacked.pairs} == {*ALL_LINEAR}
    for name, pair in named.pairs.items():
        assert all(torch.equal(one, two) for one, two in zip(pair, stacked.pairs[name], strict=True)), name
    name = "model.layers.0.mlp.experts.down_proj"
    a, b = stacked.pairs[name]
    weight = torch.randn(len(a), b.shape[1], a.shape[2], generator=torch.Generator().manual_seed(2))
    out = torch.empty_like(weight)
    merge_into(out, weight, stacked, name)
    for expert in range(len(a)):
        exact = merged(weight[expert], a[expert], b[expert], stacked.scale(name))
        assert torch.allclose(out[expert], exact, atol=1e-6), expert
    merge_into(out, weight, stacked, "model.layers.9.mlp.experts.down_proj")
    assert torch.equal(out, weight)


@pytest.mark.parametrize("staleness", [0, 1])
def test_every_step_is_served_what_peft_s_file_would_say(
    policy: Policy, tmp_path: Path, staleness: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what is kept, though it is written slowly while the next step samples."""
    write = adapter_files.write_peft
    monkeypatch.setattr("tasks.engines.learning.lora.write_peft", lambda *given: (time.sleep(0.3), write(*given)))
    found: dict[bool, dict[int, dict[str, torch.Tensor]]] = {True: {}, False: {}}
    for stacked, seen in found.items():

        def sample(
            plan: StepPlan, stacked: bool = stacked, seen: dict[int, dict[str, torch.Tensor]] = seen
        ) -> list[TrainRollout]:
            if plan.adapter and plan.policy_step:
                assert (plan.adapter.folder / SERVED).is_file() == stacked
                pairs = read_served(plan.adapter.folder).pairs
                seen[plan.policy_step] = {name: torch.cat([m.flatten() for m in pair]) for name, pair in pairs.items()}
            return random_rollouts(plan.problem_ids, plan.group_size, plan.step)

        execution = Execution(device="cpu", stacked_adapters=stacked)
        run(
            policy.base,
            tmp_path / str(stacked),
            replace(CONFIG, staleness=staleness),
            sample=sample,
            execution=execution,
        )
    assert found[True].keys() == found[False].keys() >= {1, 2, 3}
    for step, pairs in found[True].items():
        assert all(torch.equal(pair, found[False][step][name]) for name, pair in pairs.items()), step
    served = {folder.name: (folder / SERVED).is_file() for folder in (tmp_path / "True" / "served").iterdir()}
    assert served.pop("step-0003") is served.pop("step-0005") is False  # kept, in PEFT's format
    assert list(served.values()).count(True) == staleness
    for step in ("step-0003", "step-0005"):
        files = (tmp_path / way / "served" / step / "adapter_model.safetensors" for way in ("True", "False"))
        one, two = map(load_file, files)
        assert all(torch.equal(one[name], two[name]) for name in two), step


def test_a_kept_adapter_that_a_kill_cut_off_is_written_again(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint after it is there before it is whole: the training goes on from its own step."""
    calls: list[int] = []

    def cut(*given: object) -> dict[str, object]:
        calls.append(1)
        return {} if len(calls) == 1 else 1 / 0  # type: ignore[return-value]

    with monkeypatch.context() as patch:
        patch.setattr(adapter_files, "_config", cut)  # the first adapter to be kept is the start's
        with pytest.raises(ZeroDivisionError):
            run(policy.base, tmp_path / "cut", CONFIG, execution=STACKED)
    assert {f.name for f in (tmp_path / "cut" / "checkpoints").iterdir()} == {"step-0002", "step-0003"}
    whole, again = (
        weights(run(policy.base, tmp_path / way, CONFIG, execution=STACKED).kept_adapters[-1])
        for way in ("whole", "cut")
    )
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_an_adapter_that_is_gone_is_said(tmp_path: Path) -> None:
    """It would be read as zeros, and the base model sampled from in its name."""
    for use in (lambda: served_name(ServedAdapter("a", tmp_path)), lambda: read_served(tmp_path)):
        with pytest.raises(UserError, match=r"the adapter is missing. .* remove its newest checkpoint folder"):
            use()


# Adapters in the weights: unbiased where the type is coarse, exact where it is not, the same for learner and sampler.


HALF = Execution(device="cpu", dtype="bfloat16")
#: Grouped products of bfloat16 read rows of 16 bytes.
OF_EXPERTS = replace(PACKED, lora_rank=8)


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
            with policy.lora.with_weights(torch.zeros_like(policy.lora.work)):
                policy.lora.experts.begin()
        policy.lora.experts.finish()
        found.append([m.down_proj.clone() for n, m in policy.body.named_modules() if n.endswith(".experts")])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


# Experts with a rank of their own: each matrix of that rank and scaled by it, wherever the adapter goes.


NARROW = replace(CONFIG, lora_rank=32, lora_alpha=32, expert_rank=8)


@pytest.fixture(scope="module")
def narrow(tiny_mixture: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Path]:
    """A policy with such experts, and the folder of its adapter."""
    made, folder = shifted(Policy(tiny_mixture, NARROW, Execution(device="cpu"))), tmp_path_factory.mktemp("adapter")
    made.lora.export(folder, made.base, torch.float32)
    return made, folder


def test_vllm_reads_rank_and_scale_of_every_matrix(narrow: tuple[Policy, Path]) -> None:
    helper = pytest.importorskip("vllm.lora.peft_helper").PEFTHelper.from_local_dir(str(narrow[1]), None)
    for name, matrix in weights(narrow[1]).items():
        module, _, which = name.removeprefix("base_model.model.").partition(".lora_")
        rank, scale = helper.get_rank_and_scaling(module)
        assert (rank, scale) == ((8, 4.0) if ".experts." in name else (32, 1.0)), name
        assert rank == (matrix.shape[0] if which == "A.weight" else matrix.shape[1])


def test_what_was_written_is_gone_on_with_and_other_ranks_are_refused(
    narrow: tuple[Policy, Path], tmp_path: Path
) -> None:
    policy, written = narrow
    again, other = (
        Policy(policy.base, c, Execution(device="cpu")) for c in (NARROW, replace(NARROW, expert_rank=None))
    )
    again.lora.load(written, policy.base)
    assert torch.equal(again.lora.master, policy.lora.master)
    with pytest.raises(UserError, match=r"settings: expert_rank 8 and not 32"):
        other.lora.load(written, policy.base)
    found = adapter_files.adapter_files(written)
    assert (found.rank, found.expert_rank, found.largest_rank) == (32, 8, 32)
    with pytest.raises(UserError, match=r"lora_rank 32 and not 16; expert_rank 8 and not 16. Change"):
        found.check_recipe(replace(NARROW, lora_rank=16, expert_rank=None))
    several = adapter(tmp_path / "several", rank=4, ranks={"q_proj": 2})
    with pytest.raises(UserError, match="serves one rank for linear layers and one for experts"):
        adapter_files.adapter_files(several)
