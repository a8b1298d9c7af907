"""LoRA on the experts of a mixture against plain autograd through weights that hold it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from storage.errors import UserError
from tasks.domain.grpo.learner_config import EXPERT_PROJECTIONS
from tasks.engines.learning.experts import WEIGHTS, LoraExperts, expert_shapes

EXPERTS, HIDDEN, INNER, RANK, SCALE = 5, 16, 8, 8, 0.5


def layer(hidden_act: str = "silu") -> Any:
    from transformers import Qwen3MoeConfig
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

    made = Qwen3MoeExperts(
        Qwen3MoeConfig(num_experts=EXPERTS, hidden_size=HIDDEN, moe_intermediate_size=INNER, hidden_act=hidden_act)
    )
    draw = torch.Generator().manual_seed(1)
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.5, generator=draw)
    return made.requires_grad_(False)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def adapters(made: Any, names: tuple[str, ...]) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    shapes = {name: expert_shapes(made, name, RANK) for name in names}
    return {n: (drawn(EXPERTS, *a, seed=len(n)), drawn(EXPERTS, *b, seed=len(n) + 1)) for n, (a, b) in shapes.items()}


def plainly(made: Any, pairs: Any, x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """A token at a time, an expert at a time, with W + s·B·A."""
    gate, up = made.gate_up_proj.chunk(2, dim=1)
    whole = {"gate_proj": gate, "up_proj": up, "down_proj": made.down_proj}
    whole |= {name: whole[name] + SCALE * b @ a for name, (a, b) in pairs.items()}
    out = []
    for token in range(len(x)):
        at = [
            w
            * (
                whole["down_proj"][e]
                @ (torch.nn.functional.silu(whole["gate_proj"][e] @ x[token]) * (whole["up_proj"][e] @ x[token]))
            )
            for e, w in zip(experts[token].tolist(), weights[token], strict=True)
        ]
        out.append(torch.stack(at).sum(0))
    return torch.stack(out)


@pytest.mark.parametrize("merge", [False, True], ids=["beside", "merged"])
@pytest.mark.parametrize("names", [EXPERT_PROJECTIONS, ("gate_proj",), ("up_proj", "down_proj"), ("down_proj",)])
def test_values_and_gradients_are_those_of_the_whole_weights(names: tuple[str, ...], merge: bool) -> None:
    made = layer()
    experts = torch.stack([torch.randperm(4, generator=torch.Generator().manual_seed(i))[:2] for i in range(11)])
    assert 4 not in experts  # an expert without a row
    results = []
    for ours in (True, False):
        pairs = {n: tuple(m.clone().requires_grad_() for m in pair) for n, pair in adapters(made, names).items()}
        x, weights = drawn(11, HIDDEN, seed=7).requires_grad_(), drawn(11, 2, seed=8).requires_grad_()
        if ours:
            module = LoraExperts(layer(), pairs, SCALE * RANK, merge=merge)  # type: ignore[arg-type]
            if merge:
                for weight in WEIGHTS:
                    module.overwrite(weight, getattr(made, weight))
            out = module(x, experts, weights)
            matrices = [m for n in names for m in (module.a[n], module.b[n])]
        else:
            out = plainly(made, pairs, x, experts, weights)
            matrices = [m for n in names for m in pairs[n]]
        grads = torch.autograd.grad((out * drawn(11, HIDDEN, seed=9)).sum(), [x, weights, *matrices])
        results.append([out, *grads])
    for mine, plain in zip(*results, strict=True):
        assert torch.allclose(mine, plain, atol=2e-4, rtol=1e-4)


def test_another_activation_is_refused() -> None:
    with pytest.raises(UserError, match="only SiLU"):
        LoraExperts(layer("gelu"), {}, 1.0)
