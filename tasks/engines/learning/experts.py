"""LoRA on the experts of a mixture: one pair of matrices per expert and projection, computed for all experts at once.

transformers stores a layer's experts in two 3-D weights. Rows that are routed to one expert are made contiguous, so
that each product is one grouped matrix product. In an adapter file each expert has its own names
(`experts.3.gate_proj`), which vLLM reads and peft fuses again.

Axes: T tokens, K experts per token, R = T·K rows sorted by expert, E experts, D hidden, I inner, r rank, H projections
of gate and up that have LoRA. For the backward pass a layer keeps its input, gate and up, and recomputes or avoids
other products. With G = W2ᵀ dy, the gradient of the inner row is w·G, and the gradient of the row's weight w is G ·
inner.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import grouped_mm

from storage.errors import UserError
from tasks.domain.grpo.learner_config import EXPERT_PROJECTIONS
from tasks.engines.adapter_files import Products
from tasks.engines.learning.merging import fetched, host_copies, merge_into

#: The projections that share one weight of a layer, in the order of that weight.
GATE_UP = ("gate_proj", "up_proj")
#: (A: E x r x columns, B: E x rows x r) of a projection.
Pair = tuple[Tensor, Tensor]

#: Class names of SiLU modules.
SILU = ("SiLU", "SiLUActivation")


@dataclass(frozen=True, slots=True)
class Frozen:
    """The frozen weights of a layer. gate_up: E x 2I x D; down: E x D x I. scale: alpha / rank of the adapter."""

    gate_up: Tensor
    down: Tensor
    scale: float


@dataclass(frozen=True, slots=True)
class Routes:
    """The routing of tokens. order_R: indices into T x K, sorted by expert. back_TK: the row of each index. ends_E:
    int32, the end of each expert's rows."""

    order_R: Tensor
    back_TK: Tensor
    token_R: Tensor
    ends_E: Tensor


def routes(experts_TK: Tensor, experts: int) -> Routes:
    expert_R, order_R = experts_TK.flatten().sort(stable=True)
    back = torch.empty_like(order_R)
    back[order_R] = torch.arange(len(order_R), device=order_R.device)
    ends_E = torch.searchsorted(expert_R, torch.arange(experts, device=order_R.device), right=True).int()
    return Routes(order_R, back.view(experts_TK.shape), order_R // experts_TK.shape[1], ends_E)


def grouped(x_RI: Tensor, weights_EOI: Tensor, ends_E: Tensor) -> Tensor:
    """Return x · Wᵀ, where each row has the weight of its expert."""
    return grouped_mm(x_RI, weights_EOI.transpose(-2, -1), offs=ends_E)


def through(x_RO: Tensor, weights_EOI: Tensor, ends_E: Tensor) -> Tensor:
    """Return x · W, where each row has the weight of its expert."""
    return grouped_mm(x_RO, weights_EOI, offs=ends_E)


def outer(left_RM: Tensor, right_RN: Tensor, ends_E: Tensor) -> Tensor:
    """Return leftᵀ · right over the rows of each expert: E x M x N."""
    return grouped_mm(left_RM.T, right_RN, offs=ends_E)


def _gated(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def _gated_backward(grad_RI: Tensor, gate_up: Tensor, weight_R: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (inner, gradient of gate and up, gradient of the row's weight). grad: of inner, without the weight."""
    wide = torch.promote_types(gate_up.dtype, torch.float32)
    gate, up = (half.to(wide) for half in gate_up.chunk(2, dim=-1))
    sigmoid = torch.sigmoid(gate)
    silu, grad = gate * sigmoid, grad_RI.to(wide)
    inner, weighed = silu * up, grad * weight_R[:, None].to(wide)
    slope = sigmoid * (1 + gate * (1 - sigmoid))
    both = torch.cat([weighed * up * slope, weighed * silu], dim=-1).to(gate_up.dtype)
    return inner.to(gate_up.dtype), both, (grad * inner).sum(-1)


def _summed(rows_RD: Tensor, back_TK: Tensor, weights_TK: Tensor | None) -> Tensor:
    """Sum the experts' rows per token in a fixed order, so that results repeat to the bit (index_add on a GPU does
    not). The loop over K is unrolled, because a compiled reduction takes seven times as long as its memory traffic."""
    wide = torch.promote_types(rows_RD.dtype, torch.float32)
    total = None
    for k in range(back_TK.shape[1]):
        place = rows_RD[back_TK[:, k]].to(wide)
        place = place if weights_TK is None else place * weights_TK[:, k, None]
        total = place if total is None else total + place
    assert total is not None
    return total.to(rows_RD.dtype)


@cache
def kernels(*, gpu: bool) -> tuple[Any, Any, Any]:
    """Return (gated product, its backward pass, sum over a token's experts)."""
    if not gpu:
        return _gated, _gated_backward, _summed
    from tasks.engines.kernels import gated_backward

    return torch.compile(_gated, dynamic=True), gated_backward, torch.compile(_summed, dynamic=True)


class Routed(torch.autograd.Function):
    """The output of a layer of experts, T x D. names: projections with LoRA, whose matrices A and B follow as
    arguments, in this order. merged: whether the weights contain LoRA, or LoRA's products are separate."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weights_TK: Tensor,
        at: Routes,
        weights: Frozen,
        names: tuple[str, ...],
        merged: bool,
        *matrices: Tensor,
    ) -> Tensor:
        gated, _, summed = kernels(gpu=x.is_cuda)
        pairs, ends = pairs_of(names, matrices), at.ends_E

        def add(out: Tensor, rows: Tensor, name: str) -> None:
            if name in pairs and not merged:
                a, b = pairs[name]
                out.add_(grouped(grouped(rows, a, ends), b, ends), alpha=weights.scale)

        rows = x[at.token_R]
        gate_up = grouped(rows, weights.gate_up, ends)
        for name, half in zip(GATE_UP, gate_up.chunk(2, dim=-1), strict=True):
            add(half, rows, name)
        inner = gated(gate_up)
        out = grouped(inner, weights.down, ends)
        add(out, inner, "down_proj")
        ctx.save_for_backward(x, weights_TK, gate_up, *matrices)
        ctx.at, ctx.weights, ctx.names, ctx.merged = at, weights, names, merged
        return summed(out, at.back_TK, weights_TK)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        at, weights, names, merged = ctx.at, ctx.weights, ctx.names, ctx.merged
        x, weights_TK, gate_up, *matrices = ctx.saved_tensors
        pairs, ends, scale = pairs_of(names, matrices), at.ends_E, weights.scale
        _, gated_backward, summed = kernels(gpu=x.is_cuda)
        weight_R = weights_TK.flatten()[at.order_R]
        found: dict[str, Pair] = {}
        grad_out = grads[0][at.token_R]
        grad_inner, back = through(grad_out, weights.down, ends), None
        if "down_proj" in pairs:
            back = through(grad_out, pairs["down_proj"][1], ends)
            if not merged:
                grad_inner.add_(through(back, pairs["down_proj"][0], ends), alpha=scale)
        inner, grad_gate_up, grad_weight = gated_backward(grad_inner, gate_up, weight_R)
        if back is not None:
            by_weight = (weight_R * scale)[:, None].to(x.dtype)
            low = grouped(inner, pairs["down_proj"][0], ends)
            found["down_proj"] = (outer(back.mul_(by_weight), inner, ends), outer(grad_out, low.mul_(by_weight), ends))
        grad_rows = through(grad_gate_up, weights.gate_up, ends)
        halves = dict(zip(GATE_UP, grad_gate_up.chunk(2, dim=-1), strict=True))
        halves = {name: half for name, half in halves.items() if name in pairs}
        if halves:
            rows, rank = x[at.token_R], pairs[next(iter(halves))][0].shape[1]
            a_both = torch.cat([pairs[name][0] for name in halves], dim=1)
            low_RHr = grouped(rows, a_both, ends).mul_(scale)
            backs = [through(half, pairs[name][1], ends) for name, half in halves.items()]
            back_RHr = torch.cat(backs, dim=-1).mul_(scale)
            if not merged:
                grad_rows.add_(through(back_RHr, a_both, ends))
            grads_a = outer(back_RHr, rows, ends)
            each = zip(halves.items(), grads_a.split(rank, dim=1), low_RHr.split(rank, dim=-1), strict=True)
            for (name, half), grad_a, low in each:
                found[name] = (grad_a, outer(half, low, ends))
        grad_x = summed(grad_rows, at.back_TK, None)
        grad_weights = grad_weight[at.back_TK].to(weights_TK.dtype)
        return grad_x, grad_weights, *[None] * 4, *(m for name in names for m in found[name])


def pairs_of(names: tuple[str, ...], matrices: Any) -> Mapping[str, Pair]:
    return {name: (matrices[2 * i], matrices[2 * i + 1]) for i, name in enumerate(names)}


def expert_layers(model: nn.Module, targets: Sequence[str]) -> dict[str, Any]:
    """Return the layers of fused experts by name; empty if no projection of experts is a target."""
    if not set(targets) & set(EXPERT_PROJECTIONS):
        return {}
    return {name: m for name, m in model.named_modules() if type(m).__name__ == "Qwen3MoeExperts"}


def expert_shapes(layer: Any, projection: str, rank: int) -> tuple[tuple[int, int], tuple[int, int]]:
    hidden, inner = layer.hidden_dim, layer.intermediate_dim
    if projection == "down_proj":
        return (rank, inner), (hidden, rank)
    return (rank, hidden), (inner, rank)


def stacked_views(views: dict[str, Tensor], first: str, experts: int) -> tuple[Tensor, Tensor]:
    """Return (A, B) of all experts as 3-D views that start at A and B of the first expert."""
    a, b = views[f"{first}.lora_A.weight"], views[f"{first}.lora_B.weight"]
    return a.as_strided((experts, *a.shape), (a.numel(), a.shape[1], 1)), b.as_strided(
        (experts, *b.shape), (b.numel(), b.shape[1], 1)
    )


class LoraExperts(nn.Module):
    """A layer of experts with LoRA and the activation SiLU. Raise UserError for another activation. matrices: (A:
    ExRxI, B: ExOxR) by projection, of one rank, as trained views. merge: `overwrite` replaces the layer's weights by
    weights that contain LoRA."""

    def __init__(self, layer: Any, matrices: Mapping[str, Pair], alpha: float, *, merge: bool = False) -> None:
        super().__init__()
        if (kind := type(layer.act_fn).__name__) not in SILU:
            raise UserError(f"learner: experts with the activation {kind} cannot be trained, only SiLU")
        self.gate_up_proj, self.down_proj = layer.gate_up_proj, layer.down_proj
        self.names, self.alpha, self.merge = tuple(matrices), alpha, merge
        self.a = nn.ParameterDict({name: nn.Parameter(a) for name, (a, _) in matrices.items()})
        self.b = nn.ParameterDict({name: nn.Parameter(b) for name, (_, b) in matrices.items()})

    def forward(self, hidden_TD: Tensor, experts_TK: Tensor, weights_TK: Tensor) -> Any:
        base = Frozen(self.gate_up_proj, self.down_proj, self.alpha / self.a[self.names[0]].shape[1])
        lora = [matrix for name in self.names for matrix in (self.a[name], self.b[name])]
        at = routes(experts_TK, len(self.down_proj))
        return Routed.apply(hidden_TD, weights_TK, at, base, self.names, self.merge, *lora)

    def overwrite(self, weight: str, base: Tensor) -> None:
        """Overwrite `gate_up_proj` or `down_proj` with its base weight plus LoRA, as a merging sampler does."""
        held = {name: (self.a[name].data, self.b[name].data) for name in self.names}
        products, into = Products(held, self.alpha), getattr(self, weight).data
        parts = GATE_UP if weight == "gate_up_proj" else ("down_proj",)
        halves = (tensor.chunk(len(parts), dim=1) for tensor in (into, base))
        for part, out, block in zip(parts, *halves, strict=True):
            merge_into(out, block, products, part)


WEIGHTS = ("gate_up_proj", "down_proj")


class MergedExperts:
    """Merges LoRA into experts in a background thread. modules: LoraExperts by name, on one device; may be empty."""

    def __init__(self, modules: Mapping[str, Any], device: torch.device) -> None:
        self._places = {f"{name}.{weight}": (module, weight) for name, module in modules.items() for weight in WEIGHTS}
        self._base = host_copies({name: getattr(module, w).data for name, (module, w) in self._places.items()})
        self._device, self._aside = device, ThreadPoolExecutor(1, thread_name_prefix="merging")
        self._under_way: Future[None] | None = None
        self._behind = False

    def changed(self) -> None:
        """Note that A or B changed. No merge may run during such a change."""
        self._behind = True

    def begin(self) -> None:
        """Start merging the adapter in the background if A or B changed."""
        if self._behind and self._places and self._under_way is None:
            self._behind, self._under_way = False, self._aside.submit(self._overwrite)

    def finish(self) -> None:
        """Merge the current A and B, and wait until that is done."""
        self.begin()
        self.finish_begun()

    def finish_begun(self) -> None:
        """Wait for a running merge. Before the merge ends, A and B must not change."""
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            under_way.result()

    def _overwrite(self) -> None:
        for name, base in fetched(self._base, self._device):
            module, weight = self._places[name]
            module.overwrite(weight, base)
