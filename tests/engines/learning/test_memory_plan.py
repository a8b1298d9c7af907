"""Memory known from the config: counted by hand for a dense model and a mixture, and refused before loading."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from storage.errors import UserError
from tasks.domain.grpo.learner_config import ALL_LINEAR, ATTENTION, EXPERT_PROJECTIONS, LearnerConfig
from tasks.domain.grpo.steps import PromptProblem
from tasks.engines.hardware import Hardware, free_bytes
from tasks.engines.learning.experts import expert_module, expert_shapes
from tasks.engines.learning.learner import train
from tasks.engines.learning.memory_plan import GIB, check_host_memory, lora_parameters, read_config
from tasks.engines.learning.policy import Execution
from tasks.engines.learning.training_memory import (
    UNBOUNDED,
    activation_bytes,
    check_disk,
    checkpoint_bytes,
    disk_bytes,
    plan_memory,
    plan_training,
)
from tasks.engines.stored_weights import loaded_bytes
from tests.hollow import hollow_weights
from tests.random_mixture import CONFIG

LEARNER = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1e-3, lora_rank=2, lora_alpha=2)
DENSE: dict[str, Any] = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "num_hidden_layers": 3,
    "vocab_size": 10,
}
MIXTURE = DENSE | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6}


def test_lora_parameters_by_hand() -> None:
    """Attention (8+8)+(8+4)+(8+4)+(8+8) = 56 a rank and layer; an MLP 3·(8+16) = 72, four experts 4·3·(8+6) = 168."""
    assert lora_parameters(DENSE, 2) == 2 * 3 * (56 + 72)
    assert lora_parameters(MIXTURE, 2) == 2 * 3 * (56 + 168)
    assert lora_parameters(MIXTURE, 2, ATTENTION) == 2 * 3 * 56
    assert lora_parameters(MIXTURE, 2, expert_rank=1) == 3 * (2 * 56 + 168)


def test_the_estimate_counts_what_the_learner_allocates(tmp_path: Path) -> None:
    """Of a real mixture: the flat vector of all matrices is as long as the estimate says."""
    from tasks.engines.learning.policy import Policy
    from tests.engines.sampling.test_serving import moe_config
    from tests.tiny_model import write_tiny_mixture

    base = write_tiny_mixture(tmp_path / "moe")
    for targets in ("attention", "experts", "narrow experts"):
        config = moe_config(targets)
        policy = Policy(base, config, Execution(device="cpu"))
        expected = lora_parameters(read_config(base), config.lora_rank, config.target_modules, config.expert_rank)
        assert policy.lora.master.numel() == expected


def test_a_checkpoint_on_its_way_holds_what_the_plan_counts(tmp_path: Path) -> None:
    """Weights and two moments in float32; a critic has as many."""
    from tasks.engines.learning.policy import Policy
    from tasks.engines.learning.update import Updater
    from tests.engines.sampling.test_serving import moe_config
    from tests.tiny_model import write_tiny_mixture

    base, config = write_tiny_mixture(tmp_path / "moe"), moe_config("experts")
    updater = Updater(Policy(base, config, Execution(device="cpu")), config, 64)
    updater.weights.grad = updater.weights.new_zeros(updater.weights.shape)
    updater.optimiser.step()
    held = sum(tensor.nbytes for tensor in updater.tensors().values())
    # and how many steps Adam has taken
    assert 0 <= held - checkpoint_bytes(base, config) <= 8
    both = replace(config, advantage="multi_agent")
    assert checkpoint_bytes(base, both) == 2 * checkpoint_bytes(base, config)


def test_a_training_without_room_on_the_disk_is_refused_before_it_samples(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 30B mixture's third checkpoint found the disk full, after hours. What lies in the folder is written over."""
    config = replace(LEARNER, steps=4, eval_every=2)
    # keep 2, one on its way, each of three float32 vectors; steps 0, 2 and 4 kept and three served
    lora = lora_parameters(read_config(tiny_base), 2, config.target_modules)
    needed = disk_bytes(tiny_base, config, Execution())
    assert needed == (3 * 12 + 6 * 4) * lora
    free = 0
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(
        UserError, match=r"checkpoints and adapters on its way, and there is room for 0\.0 KiB; make room"
    ):
        train(
            base=tiny_base,
            problems=[PromptProblem("p", "s")],
            config=config,
            execution=Execution(device="cpu"),
            workdir=tmp_path,
            sample=lambda _: pytest.fail("sampled"),
        )
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "kept").write_bytes(bytes(1000))
    free = needed - 1000
    check_disk(tmp_path, tiny_base, config, Execution())
    free -= 1
    with pytest.raises(UserError, match="make room"):
        check_disk(tmp_path, tiny_base, config, Execution())


def test_a_mixture_s_copies_and_checkpoints_fit_into_host_memory_or_are_refused(tmp_path: Path) -> None:
    from tests.tiny_model import write_tiny_mixture

    base = write_tiny_mixture(tmp_path / "moe")
    weights = loaded_bytes(base, 4)
    check_host_memory(base, 10 * weights, 4, copies=2, checkpoints=6 * weights)
    with pytest.raises(UserError, match=r"2 copies in host memory of .* each, beside .* of checkpoints"):
        check_host_memory(base, 10 * weights, 4, copies=2, checkpoints=8 * weights)


def test_activations_by_hand() -> None:
    """Two bytes a value. Dense: 10·8 + 4·8 + 4·16 = 176 a layer, fused 6·8 + 2·8 + 4·4 + 2·16 = 112. A mixture: 10·8 +
    4·8 + 2·2·6 = 136, fused 6·8 + 2·8 + 4·4 + 2·2·6 = 104, and 2·4·(6 + 8) = 112 in passing."""
    assert activation_bytes(DENSE, ALL_LINEAR, 2, recompute=False) == 2 * 3 * 176
    assert activation_bytes(DENSE, ALL_LINEAR, 2, recompute=True) == 2 * (176 + 3 * 8)
    assert activation_bytes(MIXTURE, ALL_LINEAR, 2, recompute=False) == 2 * (3 * 136 + 112)
    assert activation_bytes(DENSE, ALL_LINEAR, 2, recompute=False, fused=True) == 2 * 3 * 112
    assert activation_bytes(MIXTURE, ALL_LINEAR, 2, recompute=False, fused=True) == 2 * (3 * 104 + 112)
    assert activation_bytes(MIXTURE, ALL_LINEAR, 2, recompute=True, fused=True) == 2 * (104 + 112 + 3 * 8)


@pytest.mark.parametrize("targets", [ALL_LINEAR, ATTENTION])
def test_experts_keep_what_is_counted_trained_and_frozen(targets: tuple[str, ...]) -> None:
    """Of a real layer: frozen experts run transformers' own function, which keeps more than that with LoRA does."""
    import torch
    from transformers import Qwen3MoeConfig
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

    sizes: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 4, "hidden_size": 64, "moe_intermediate_size": 24}
    config = Qwen3MoeConfig(**sizes)
    config._experts_implementation = "grouped_mm"  # what a loaded model has
    experts: Any = Qwen3MoeExperts(config).requires_grad_(False)
    pairs = {
        name: tuple(torch.zeros(8, *shape, requires_grad=True) for shape in expert_shapes(experts, name, 8))
        for name in EXPERT_PROJECTIONS
        if name in targets
    }
    layer = expert_module(experts, pairs, 1.0) if pairs else experts  # type: ignore[arg-type]
    tokens, seen = 256, dict[int, torch.Tensor]()
    rows, weights = torch.randn(tokens, 64, requires_grad=True), torch.rand(tokens, 4, requires_grad=True)
    at = torch.stack([torch.randperm(8)[:4] for _ in range(tokens)])

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        seen[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(rows, at, weights)
    known = {t.untyped_storage().data_ptr() for t in (rows, *experts.parameters(), *layer.parameters())}
    kept = sum(t.untyped_storage().nbytes() for place, t in seen.items() if place not in known) / tokens
    two, one = (activation_bytes(DENSE | sizes | {"num_hidden_layers": n}, targets, 4, recompute=False) for n in (2, 1))
    around = 4 * (10 * 64 + 4 * 2 * 4)
    # rows of rank 8 beside each projection, routes and their weights
    assert 0 <= kept - (two - one - around) <= 4 * 4 * (3 * 8 + 8)


#: (layers, rows of a pack) of Qwen3-30B-A3B's shape, LoRA r32 everywhere: GiB at the peak of benchmarks/learner_profile;
#: the last of benchmarks/grpo_speed, where a rollout was longer than packs are to be.
MEASURED = {(48, 8192): 116.6, (12, 8192): 31.7, (12, 16384): 38.4, (48, 12288 + 260): 131.4}


@pytest.mark.parametrize(("layers", "rows"), list(MEASURED))
def test_a_mixture_on_a_gpu_takes_what_is_planned(tmp_path: Path, layers: int, rows: int) -> None:
    """Within a tenth of what an H200 measured; layers are recomputed from nine tenths of what is free on."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}))
    layer = 2048 * 128 * 2 * (32 + 4) + 128 * (3 * 2048 * 768 + 2048)
    hollow_weights(tmp_path / "model.safetensors", layers * layer + 2 * 151936 * 2048)
    learner, execution = replace(LEARNER, lora_rank=32), Execution(token_budget=rows)
    peak = MEASURED[layers, rows] * GIB / 0.9
    assert plan_memory(tmp_path, learner, execution, 2, int(1.1 * peak), gpu=True) >= rows
    assert plan_memory(tmp_path, learner, execution, 2, int(0.9 * peak), gpu=True) < rows


def test_recomputes_where_memory_asks_for_it_and_refuses_where_even_that_is_too_little(tmp_path: Path) -> None:
    """Of packs of at most 100 rows those that fit into nine tenths are kept."""
    fixed, kept, recomputed = small(tmp_path)
    whole = fixed + 100 * kept
    packs = Execution(token_budget=100, logprob_chunk=1)
    assert plan_memory(tmp_path, LEARNER, packs, 2, free=2 * whole) >= 100
    assert plan_memory(tmp_path, LEARNER, packs, 2, free=whole) == int((0.9 * whole - fixed) // kept) < 100
    for order, rows in (("on", 0), ("off", UNBOUNDED)):
        assert plan_memory(tmp_path, LEARNER, replace(packs, checkpointing=order), 2, free=2 * whole) == rows  # type: ignore[arg-type]
    little = fixed + 100 * recomputed
    with pytest.raises(
        UserError,
        match=r"training needs about 0\.0 GiB with packs of 100 tokens and 0\.0 GiB are free; lower token_budget or",
    ):
        plan_memory(tmp_path, LEARNER, packs, 2, free=little)


def test_what_the_system_keeps_of_files_and_would_give_back_counts_as_free() -> None:
    """A machine that has read many files has few empty pages: a training was refused beside 20 GB of them."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    available = next(int(kb) for name, kb, *_ in lines if name == "MemAvailable:") * 1024
    assert free_bytes(torch.device("cpu")) > 0.9 * available


def test_memory_that_only_pytorch_holds_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an 80 GB card after a training, in GiB: the driver had 3.5 free and PyTorch held 39 that nothing used. What a
    sampler that is still starting will take is not free."""
    driver = {"free": 3.5, "unused": 39.2}

    def empty_cache() -> None:
        driver.update(free=sum(driver.values()), unused=0.0)

    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("torch.cuda.empty_cache", empty_cache)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (int(driver["free"] * GIB), 80 * GIB))
    assert free_bytes(torch.device("cuda"), 0.58) / GIB == pytest.approx(42.7)
    driver["free"] = 79.0
    shared = Hardware(memory_fraction=0.42)
    assert free_bytes(torch.device("cuda"), shared.learner_share) / GIB == pytest.approx(0.58 * 80)
    apart = replace(shared, sampler_apart=True, engine_process="core")
    assert free_bytes(torch.device("cuda"), apart.learner_share) / GIB == pytest.approx(79.0)


def test_a_rollout_longer_than_packs_are_to_be_is_planned_for(tmp_path: Path) -> None:
    """Kept it takes 400 rows, recomputed the packs of 100 beside it are what takes most; where nothing is known of the
    device, packs are as long as they are to be."""
    fixed, kept, recomputed = small(tmp_path)
    packs = Execution(token_budget=100, longest=400, logprob_chunk=1)
    assert 400 * recomputed > 100 * kept
    roomy, tight = (int((fixed + rows * kept) / 0.9) + 1 for rows in (400, 100))
    found = plan_training(tmp_path, LEARNER, packs, 2, roomy)
    assert (found.bytes, found.kept_rows, found.largest) == (fixed + 400 * kept, 400, 400)
    found = plan_training(tmp_path, LEARNER, packs, 2, tight)
    assert (found.bytes, found.kept_rows, found.largest) == (fixed + 400 * recomputed, 100, 400)
    assert plan_training(tmp_path, LEARNER, packs, 2, None).bytes == fixed + 100 * kept
    with pytest.raises(UserError, match=r"with packs of 400 tokens .* lower token_budget, max_model_len or"):
        plan_memory(tmp_path, LEARNER, replace(packs, checkpointing="off"), 2, free=roomy - 400 * kept)


def small(folder: Path) -> tuple[int, int, int]:
    """(bytes that are taken at any length, by a row, by a row whose layers are recomputed) of a model in `folder`."""
    (folder / "config.json").write_text(json.dumps(DENSE))
    hollow_weights(folder / "model.safetensors", 500)
    kept, recomputed = (activation_bytes(DENSE, ALL_LINEAR, 2, recompute=r) for r in (False, True))
    return 1000 + lora_parameters(DENSE, 2) * 20 + 10 * 10, kept, recomputed
