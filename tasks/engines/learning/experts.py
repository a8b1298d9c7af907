"""LoRA on the experts of a mixture: one pair of matrices per expert and projection, computed for all experts at once.

transformers keeps a layer's experts in two 3-D weights; the rows routed to one expert are brought together, so that
each product is one grouped matrix product. In an adapter file the experts have names of their own
(`experts.3.gate_proj`), which is what vLLM reads and what peft fuses again when it loads the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from storage.errors import UserError
from tasks.engines.learning.routed import Frozen, routed, routes

if TYPE_CHECKING:
    from torch import Tensor, nn

EXPERT_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def expert_layers(model: nn.Module, targets: Sequence[str]) -> dict[str, Any]:
    """The layers of fused experts by name; none where no projection of an expert is a target."""
    if not set(targets) & set(EXPERT_PROJECTIONS):
        return {}
    return {name: m for name, m in model.named_modules() if type(m).__name__ == "Qwen3MoeExperts"}


def expert_shapes(layer: Any, projection: str, rank: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of one expert's A and B."""
    hidden, inner = layer.hidden_dim, layer.intermediate_dim
    if projection == "down_proj":
        return (rank, inner), (hidden, rank)
    return (rank, hidden), (inner, rank)


def check_rank(rank: int, device_type: str) -> None:
    """Errors: UserError for a rank whose rows the GPU's grouped product cannot read."""
    if device_type == "cuda" and rank % 8:
        raise UserError(
            f"learner: lora_rank is {rank}; LoRA of experts on a GPU needs a multiple of 8, or train the attention"
            " alone (target_modules=q_proj,k_proj,v_proj,o_proj)"
        )


def expert_module(layer: Any, matrices: Mapping[str, tuple[Tensor, Tensor]], scale: float) -> Any:
    """The layer with LoRA. matrices: (A: ExRxI, B: ExOxR) by projection; views that are trained.

    Errors: UserError for an activation that is not silu.
    """
    from torch import nn

    if type(layer.act_fn).__name__ not in ("SiLU", "SiLUActivation"):
        raise UserError(
            f"learner: experts whose activation is {type(layer.act_fn).__name__} are not trained, SiLU alone"
        )

    class LoraExperts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate_up_proj, self.down_proj = layer.gate_up_proj, layer.down_proj
            self.a = nn.ParameterDict({name: nn.Parameter(a) for name, (a, _) in matrices.items()})
            self.b = nn.ParameterDict({name: nn.Parameter(b) for name, (_, b) in matrices.items()})

        def forward(self, hidden_TD: Tensor, experts_TK: Tensor, weights_TK: Tensor) -> Tensor:
            base = Frozen(self.gate_up_proj, self.down_proj, scale)
            lora = [matrix for name in self.a for matrix in (self.a[name], self.b[name])]
            at = routes(experts_TK, len(self.down_proj))
            return routed().apply(hidden_TD, weights_TK, at, base, tuple(self.a), *lora)

    return LoraExperts()
