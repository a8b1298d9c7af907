"""The GPU's kernels against plain attention: packed, prompts shared, bfloat16."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from storage.errors import UserError
from tasks.domain.grpo.learner_config import ALL_LINEAR, LearnerConfig
from tasks.domain.grpo.packing import PromptGroup, Trajectory, build_pack
from tasks.engines.learning import attention
from tasks.engines.learning.merging import Snapshot
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.learning.update import Clock, Updater
from tests.engines.conftest import random_rollouts, shifted, tiny_config
from tests.engines.learning.test_own_forward import APART, LEARNER
from tests.engines.learning.test_packed import CONFIG, grouped
from tests.gpu.test_sampling_gpu import WIDE
from tests.tiny_model import DEMO, write_tiny_mixture, write_tiny_of

pytestmark = pytest.mark.gpu
PROBLEMS = ("a", "b", "c")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads of 64, which the variable-length kernel takes, and weights that bfloat16 holds exactly."""
    from transformers import Qwen3ForCausalLM

    folder = tmp_path_factory.mktemp("gpu") / "base"
    torch.manual_seed(0)
    config = tiny_config(hidden_size=256, intermediate_size=512, head_dim=64, initializer_range=0.08)
    Qwen3ForCausalLM(config).bfloat16().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    folder = tmp_path_factory.mktemp("gpu-mixture") / "base"
    torch.manual_seed(0)
    shape = tiny_config(hidden_size=256, intermediate_size=512, head_dim=64, initializer_range=0.08).to_dict()
    mixed = {"moe_intermediate_size": 128, "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": True}
    config = Qwen3MoeConfig(**{k: v for k, v in shape.items() if k != "model_type"} | mixed)
    Qwen3MoeForCausalLM(config).bfloat16().save_pretrained(folder)
    return folder


def policy_on(device: str, base: Path, execution: Execution | None = None, config: LearnerConfig = CONFIG) -> Policy:
    return shifted(Policy(base, config, execution or Execution(device=device)))


def test_logprobs_agree_with_float32_on_the_cpu(base: Path) -> None:
    groups = [
        PromptGroup(g[0].prompt_ids, [Trajectory(i, r.token_ids, r.logprobs_T, 1.0) for i, r in enumerate(g)])
        for g in grouped(random_rollouts(PROBLEMS, 4, seed=1)).values()
    ]
    exact, entropy = policy_on("cpu", base).logprobs(build_pack(groups))
    fast, fast_entropy = policy_on("cuda", base).logprobs(build_pack(groups))
    assert (fast.cpu() - exact).abs().max() < 0.15
    assert (fast.cpu() - exact).abs().mean() < 0.03
    assert torch.allclose(fast_entropy.cpu(), entropy, atol=0.05)


@pytest.mark.parametrize(
    "execution",
    [
        Execution(device="cuda", checkpointing="off"),
        Execution(device="cuda", checkpointing="on"),
        Execution(device="cuda", checkpointing="off", merged=True),
    ],
)
def test_gradient_points_where_float32_on_the_cpu_does(base: Path, execution: Execution) -> None:
    groups = grouped(random_rollouts(PROBLEMS, 4, seed=2))
    grads = []
    for policy in (policy_on("cpu", base), policy_on("cuda", base, execution)):
        Updater(policy, CONFIG, 8192).gradient(groups, Clock())
        grads.append(policy.lora.grad.cpu())
    assert torch.linalg.vector_norm(grads[1] - grads[0]) < 0.05 * torch.linalg.vector_norm(grads[0])


@pytest.mark.parametrize("merged", [False, True])
def test_gradient_of_a_mixture_points_where_float32_on_the_cpu_does(mixture: Path, merged: bool) -> None:
    """A token whose two experts are nearly alike may go to another one in bfloat16: of few tokens that is much."""
    groups = grouped(random_rollouts(PROBLEMS, 4, seed=2))
    config = replace(CONFIG, lora_rank=8, lora_alpha=8, target_modules=ALL_LINEAR)
    grads = []
    for device in ("cpu", "cuda"):
        policy = policy_on(device, mixture, Execution(device=device, merged=merged), config)
        Updater(policy, config, 8192).gradient(groups, Clock())
        grads.append(policy.lora.grad.cpu())
    assert torch.linalg.vector_norm(grads[1] - grads[0]) < 0.15 * torch.linalg.vector_norm(grads[0])


def test_a_gated_activation_s_gradients_are_those_of_plain_torch() -> None:
    """In float32 to rounding; in bfloat16 to a unit in the last place."""
    from tasks.engines.kernels import gated_backward
    from tasks.engines.learning.experts import _gated_backward

    draw = torch.Generator("cuda").manual_seed(0)
    for rows, width, dtype, near in ((33, 768, torch.float32, 1e-5), (70_001, 768, torch.bfloat16, 2**-6)):
        grad, gate_up, weight = (
            torch.randn(*shape, generator=draw, device="cuda") for shape in ((rows, width), (rows, 2 * width), (rows,))
        )
        given = grad.to(dtype), gate_up.to(dtype), weight
        for ours, plain in zip(gated_backward(*given), _gated_backward(*given), strict=True):
            assert ours.dtype == plain.dtype
            assert ((ours - plain).abs() <= near * (1 + plain.abs())).all()


def test_a_checkpoint_is_of_the_moment_it_was_asked_for_and_takes_no_room_on_the_gpu() -> None:
    """Copies in pinned memory, which the next ones overwrite; other shapes have a place of their own."""
    before = torch.cuda.memory_allocated()
    tensors = {"weights": torch.randn(1 << 20, device="cuda"), "step": torch.tensor(3.0, device="cuda")}
    snapshot, held = Snapshot(), torch.cuda.memory_allocated()
    first = snapshot.of(tensors)
    expected = {name: tensor.cpu() for name, tensor in tensors.items()}
    tensors["weights"].zero_()
    assert all(torch.equal(first[name], expected[name]) and first[name].is_pinned() for name in tensors)
    again = snapshot.of(tensors)
    assert again["weights"].data_ptr() == first["weights"].data_ptr() and not again["weights"].any()
    more = snapshot.of(tensors | {"exp_avg": torch.ones(5, device="cuda")})
    assert more["exp_avg"].tolist() == [1.0] * 5
    assert torch.cuda.memory_allocated() - held <= 512 and held > before


def test_packs_that_are_recomputed_have_the_same_gradient(mixture: Path) -> None:
    rollouts = grouped(random_rollouts(PROBLEMS, 4, seed=8))
    config = replace(CONFIG, lora_rank=8, lora_alpha=8)
    policy = policy_on("cuda", mixture, Execution(device="cuda", merged=True, checkpointing="on"), config)
    grads = []
    for policy.kept_rows in (1 << 62, 40, 0):
        Updater(policy, config, 48).gradient(rollouts, Clock())
        grads.append(policy.lora.grad.clone())
    assert all(float((other - grads[0]).norm() / grads[0].norm()) < 0.05 for other in grads[1:])


# The learner against the model's own forward pass where it runs in bfloat16 by fused kernels.


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("merged", [False, True])
def test_rounding_is_no_other_policy(tmp_path: Path, temperature: float, merged: bool) -> None:
    models = [DEMO, write_tiny_mixture(tmp_path / "mixture", **WIDE)]
    models += [
        write_tiny_of(kind, tmp_path / f"{kind}-{large}", lambda weight, large=large: weight * large)
        for kind in ("llama", "qwen2", "qwen3", "qwen3_moe")
        for large in (1.0, 6.0)
    ]
    for base in models:
        Policy(base, LEARNER, Execution(device="cuda", merged=merged), temperature)


def test_another_attention_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, attend = write_tiny_of("qwen3_moe", tmp_path / "base"), attention._variable_length
    monkeypatch.setattr(attention, "_variable_length", lambda q, k, v, scaling, at: attend(q, k, v, scaling / 2, at))
    with pytest.raises(UserError, match=APART):
        Policy(base, LEARNER, Execution(device="cuda"), 1.0)
