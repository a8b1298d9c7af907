"""LoRA on the experts of a mixture: one pair of matrices per expert and projection, computed for all experts at once.

transformers keeps a layer's experts in two 3-D weights; the rows routed to one expert are brought together, so that
each product is one grouped matrix product. In an adapter file the experts have names of their own
(`experts.3.gate_proj`), which is what vLLM reads and what peft fuses again when it loads the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from storage.errors import UserError
from tasks.domain.grpo.learner_checks import EXPERT_PROJECTIONS
from tasks.engines.learning.merging import Products, merge_into
from tasks.engines.learning.routed import Frozen, routed, routes
from tasks.engines.learning.routed_merged import routed_merged

if TYPE_CHECKING:
    from torch import Tensor, nn


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


def stacked_views(views: dict[str, Tensor], first: str, experts: int) -> tuple[Tensor, Tensor]:
    """(A, B) of all experts as 3-D views; those of the first one say where they begin."""
    a, b = views[f"{first}.lora_A.weight"], views[f"{first}.lora_B.weight"]
    return a.as_strided((experts, *a.shape), (a.numel(), a.shape[1], 1)), b.as_strided(
        (experts, *b.shape), (b.numel(), b.shape[1], 1)
    )


def check_rank(rank: int, expert_rank: int | None, num_experts: int, bytes_per_value: int) -> None:
    """num_experts: with LoRA. Errors: UserError for a rank of experts where there are none, and for one whose rows are
    no multiple of 16 bytes, which grouped products cannot read."""
    name, of_experts = ("lora_rank", rank) if expert_rank is None else ("expert_rank", expert_rank)
    if not num_experts and expert_rank is not None:
        raise UserError(f"learner: expert_rank is {expert_rank} and the base model has no experts; leave it out")
    if num_experts and of_experts * bytes_per_value % 16:
        raise UserError(
            f"learner: {name} is {of_experts}; LoRA of experts needs a multiple of {16 // bytes_per_value} here, or"
            " train the attention alone (target_modules=q_proj,k_proj,v_proj,o_proj)"
        )


def expert_module(
    layer: Any, matrices: Mapping[str, tuple[Tensor, Tensor]], alpha: float, *, merge: bool = False
) -> Any:
    """The layer with LoRA. matrices: (A: ExRxI, B: ExOxR) by projection, of one rank; views that are trained. merge:
    the weights that it had are overwritten by those that hold LoRA, by `overwrite`.

    Errors: UserError for an activation that is not silu.
    """
    from torch import nn

    if type(layer.act_fn).__name__ not in ("SiLU", "SiLUActivation"):
        raise UserError(
            f"learner: experts whose activation is {type(layer.act_fn).__name__} are not trained, SiLU alone"
        )
    function, names = routed_merged() if merge else routed(), tuple(matrices)

    class LoraExperts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate_up_proj, self.down_proj = layer.gate_up_proj, layer.down_proj
            self.a = nn.ParameterDict({name: nn.Parameter(a) for name, (a, _) in matrices.items()})
            self.b = nn.ParameterDict({name: nn.Parameter(b) for name, (_, b) in matrices.items()})

        def forward(self, hidden_TD: Tensor, experts_TK: Tensor, weights_TK: Tensor) -> Tensor:
            base = Frozen(self.gate_up_proj, self.down_proj, alpha / self.a[names[0]].shape[1])
            lora = [matrix for name in names for matrix in (self.a[name], self.b[name])]
            at = routes(experts_TK, len(self.down_proj))
            return function.apply(hidden_TD, weights_TK, at, base, names, *lora)

        def overwrite(self, weight: str, base: Tensor) -> None:
            """`gate_up_proj` or `down_proj` by what the adapter makes of its base, as a merging sampler serves it."""
            held = {name: (self.a[name].data, self.b[name].data) for name in self.a}
            products, into = Products(held, alpha), getattr(self, weight).data
            parts = ("gate_proj", "up_proj") if weight == "gate_up_proj" else ("down_proj",)
            for part, out, block in zip(
                parts, into.chunk(len(parts), dim=1), base.chunk(len(parts), dim=1), strict=True
            ):
                merge_into(out, block, products, part)

    return LoraExperts()
