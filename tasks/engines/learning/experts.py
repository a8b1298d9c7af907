"""LoRA on the experts of a mixture: one pair of matrices per expert and projection, computed for all experts at once.

transformers keeps a layer's experts in two 3-D weights; the rows routed to one expert are brought together, so that
each product is one grouped matrix product. In an adapter file the experts have names of their own
(`experts.3.gate_proj`), which is what vLLM reads and what peft fuses again when it loads the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from storage.errors import UserError

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
    """The layer with LoRA. matrices: (A: ExRxI, B: ExOxR) by projection; views that are trained."""
    from torch import nn

    class LoraExperts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate_up_proj, self.down_proj, self.act_fn = layer.gate_up_proj, layer.down_proj, layer.act_fn
            self.a = nn.ParameterDict({name: nn.Parameter(a) for name, (a, _) in matrices.items()})
            self.b = nn.ParameterDict({name: nn.Parameter(b) for name, (_, b) in matrices.items()})

        def forward(self, hidden_TD: Tensor, experts_TK: Tensor, weights_TK: Tensor) -> Tensor:
            expert_R, order_R = experts_TK.flatten().sort(stable=True)
            ends_E = expert_R.bincount(minlength=len(self.down_proj)).cumsum(0).int()
            rows = hidden_TD[order_R // experts_TK.shape[1]]
            gate, up = _grouped(rows, self.gate_up_proj, ends_E).chunk(2, dim=-1)
            inner = self.act_fn(self._plus("gate_proj", gate, rows, ends_E))
            inner = inner * self._plus("up_proj", up, rows, ends_E)
            out = self._plus("down_proj", _grouped(inner, self.down_proj, ends_E), inner, ends_E)
            # back in the order of tokens, then a sum of fixed order: an index_add would not repeat its bits on a GPU
            out = out[order_R.argsort()].view(*experts_TK.shape, -1)
            return (out * weights_TK[..., None]).sum(1).to(hidden_TD.dtype)

        def _plus(self, name: str, out: Tensor, x: Tensor, ends_E: Tensor) -> Tensor:
            if name not in self.a:
                return out
            return out + scale * _grouped(_grouped(x, self.a[name], ends_E), self.b[name], ends_E)

    return LoraExperts()


def _grouped(x_RI: Tensor, weights_EOI: Tensor, ends_E: Tensor) -> Tensor:
    """x · Wᵀ, each row with its expert's weight; rows are sorted by expert and `ends_E` says where each one's end."""
    from torch.nn.functional import grouped_mm

    return grouped_mm(x_RI, weights_EOI.transpose(-2, -1), offs=ends_E)
