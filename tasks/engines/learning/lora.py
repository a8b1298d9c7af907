"""LoRA on frozen linear layers: float32 master weights in one flat vector, and working copies in the compute type.

One vector contains all matrices, so that casting, clipping, the optimiser step and the sum over processes are one
kernel each. The gradients of working copies go to a second flat vector, of which each copy's `.grad` is a view. A layer
multiplies by A and B separately from its base weight, or by a merged weight.

Between matrix products, memory traffic limits a decoder layer. With transformers' own norms and activations, a 1.5B
model moves about 0.9 MB per token and layer, a third of the time of a training step. So the GPU uses one kernel per
norm, rotary embedding and gated activation (`fuse`).
"""

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import AS_CRITIC
from tasks.engines.adapter_files import read_peft, write_peft, write_served
from tasks.engines.learning.experts import (
    EXPERT_PROJECTIONS,
    SILU,
    LoraExperts,
    MergedExperts,
    expert_layers,
    expert_shapes,
    stacked_views,
)
from tasks.engines.learning.merging import merged
from tasks.engines.model_checks import check_rank


def add_gradients(layer: Any, x: Tensor, grad: Tensor) -> None:
    """Add to the gradients of A and B what `grad` gives, as if the merged weight were not rounded."""
    layer.a.grad.addmm_((grad @ layer.b).T, x, alpha=layer.scale)
    layer.b.grad.addmm_(grad.T, x @ layer.a.T, alpha=layer.scale)


class LoraLinear(torch.autograd.Function):
    """The output of a linear layer with LoRA: x Wᵀ + b + scale · (x Aᵀ) Bᵀ. In a merged layer W already contains scale
    · B · A. The gradients of A and B ignore the rounding of W."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Any, a: Tensor, b: Tensor) -> Tensor:
        out = torch.nn.functional.linear(x, layer.weight, layer.bias)
        if not layer.merged:
            out.addmm_(x @ a.T, b.T, alpha=layer.scale)
        ctx.save_for_backward(x, layer.weight, a, b)
        ctx.layer = layer
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x, weight, a, b), layer, grad = ctx.saved_tensors, ctx.layer, grads[0]
        grad_x = grad @ weight if ctx.needs_input_grad[0] else None
        # launches of small kernels limit the speed on a GPU; on a CPU another order of sums would change last bits
        if layer.merged and x.is_cuda:
            add_gradients(layer, x, grad)
            return grad_x, None, None, None
        back = (grad @ b) * layer.scale
        if grad_x is not None and not layer.merged:
            grad_x.addmm_(back, a)
        inner = x @ a.T
        grad_b = (grad.T @ inner) * layer.scale
        return grad_x, None, back.T @ x, grad_b


class MergedMlp(torch.autograd.Function):
    """The output of an MLP of three merged layers: down(silu(gate(x)) · up(x)). The product before `down` is not
    stored, because the backward kernel recomputes it with the gradients. kernels: `gated` and `gated_backward`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layers: tuple[Any, Any, Any], kernels: Any, *_lora: Tensor) -> Tensor:
        gate, up = (torch.nn.functional.linear(x, layer.weight, layer.bias) for layer in layers[:2])
        ctx.save_for_backward(x, gate, up)
        ctx.layers, ctx.kernels = layers, kernels
        return torch.nn.functional.linear(kernels[0](gate, up), layers[2].weight, layers[2].bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x, gate, up), layers = ctx.saved_tensors, ctx.layers
        inner, grad_gate, grad_up = ctx.kernels[1](grads[0] @ layers[2].weight, gate, up)
        for layer, seen, grad in zip(layers, (x, x, inner), (grad_gate, grad_up, grads[0]), strict=True):
            add_gradients(layer, seen, grad)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_gate @ layers[0].weight
            grad_x.addmm_(grad_up, layers[1].weight)
        return grad_x, *(None for _ in range(8))


def merged_mlp(x: Tensor, layers: tuple[Any, Any, Any], kernels: Any) -> Tensor:
    """Return the output of an MLP with merged gate, up and down layers. kernels: see MergedMlp."""
    lora = [matrix for layer in layers for matrix in (layer.a, layer.b)]
    return MergedMlp.apply(x.flatten(0, -2), layers, kernels, *lora).view(x.shape)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    return torch.nn.functional.silu(gate) * up


def gated_backward(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (the gated product, the gradients of gate and up)."""
    wide_grad, wide_gate, wide_up = grad.float(), gate.float(), up.float()
    sigmoid = torch.sigmoid(wide_gate)
    silu = wide_gate * sigmoid
    grad_gate = wide_grad * wide_up * sigmoid * (1 + wide_gate * (1 - sigmoid))
    return gated(gate, up), grad_gate.to(gate.dtype), (wide_grad * silu).to(up.dtype)


@cache
def _compiled() -> tuple[Any, Any]:
    """Return compiled kernels, for any width of a model and any length of a pack."""
    return torch.compile(gated, dynamic=True), torch.compile(gated_backward, dynamic=True)


def _norm(module: Any, hidden: Tensor) -> Tensor:
    return torch.nn.functional.rms_norm(hidden, module.weight.shape, module.weight, module.variance_epsilon)


def _mlp(module: Any, x: Tensor) -> Tensor:
    layers = (module.gate_proj, module.up_proj, module.down_proj)
    if all(getattr(layer, "merged", False) for layer in layers):
        return merged_mlp(x, layers, _compiled())
    return module.down_proj(_compiled()[0](module.gate_proj(x), module.up_proj(x)))


def fuse(model: nn.Module) -> None:
    """Replace norms, rotary embeddings and gated activations by fused ones, in place. Unknown modules stay."""
    for module in model.modules():
        kind = type(module).__name__
        if kind.endswith("Attention"):  # the rotary embedding is a function in the module of this class
            home: Any = sys.modules[type(module).__module__]
            rotary = getattr(home, "apply_rotary_pos_emb", None)
            if rotary is not None and not hasattr(rotary, "_torchdynamo_orig_callable"):
                home.apply_rotary_pos_emb = torch.compile(rotary, dynamic=True)
        if kind.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
            module.forward = partial(_norm, module)
        parts = ("gate_proj", "up_proj", "down_proj", "act_fn")
        if all(hasattr(module, p) for p in parts) and type(module.act_fn).__name__ in SILU:
            module.forward = partial(_mlp, module)


class LoraModule(nn.Module):
    """A linear layer with LoRA matrices A and B. merge: the layer's weight is a copy that contains the adapter, and
    each call of `merge` updates it."""

    def __init__(self, linear: nn.Linear, a: Tensor, b: Tensor, scale: float, *, merge: bool) -> None:
        super().__init__()
        self.base, self.bias, self.scale, self.merged = linear.weight, linear.bias, scale, merge
        self.weight = nn.Parameter(linear.weight.clone(), requires_grad=False) if merge else linear.weight
        self.a, self.b = nn.Parameter(a), nn.Parameter(b)

    def merge(self) -> None:
        self.weight.data.copy_(merged(self.base, self.a, self.b, self.scale))

    def forward(self, x: Tensor) -> Tensor:
        return LoraLinear.apply(x.flatten(0, -2), self, self.a, self.b).view(*x.shape[:-1], -1)  # type: ignore[union-attr]


class Lora:
    """LoRA of a model's linear layers, and of its experts.

    master: float32, all matrices in one vector (`shapes`, or `stacks` for the experts of a layer). work, work_grad: the
    same in the compute type (for float32 the master itself). grad: float32 sum of the gradients of a step's packs.
    merge: the forward pass uses merged weights, the same as a sampler that merges.
    """

    def __init__(self, model: nn.Module, config: LearnerConfig, *, merge: bool = False) -> None:
        self.config, targets = config, config.target_modules
        rank, alpha, each_rank = config.lora_rank, config.lora_alpha, config.expert_rank or config.lora_rank
        linears = {
            n: m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n.rsplit(".", 1)[-1] in targets
        }
        experts = expert_layers(model, targets)
        found = {n.rsplit(".", 1)[-1] for n in linears} | set(EXPERT_PROJECTIONS if experts else ())
        if missing := sorted(set(targets) - found):
            raise UserError(f"learner: the base model has no linear layer with this name: {', '.join(missing)}")
        first = next(model.parameters())
        check_rank(rank, config.expert_rank, len(experts), first.dtype.itemsize)
        self.shapes: dict[str, tuple[int, int]] = {}
        for name, linear in linears.items():
            self.shapes[f"{name}.lora_A.weight"] = (rank, linear.in_features)
            self.shapes[f"{name}.lora_B.weight"] = (linear.out_features, rank)
        self.stacks: dict[str, tuple[int, ...]] = dict(self.shapes)
        for name, layer in experts.items():
            for projection in (p for p in EXPERT_PROJECTIONS if p in targets):
                # first A of all experts, then B of all experts, each as a 3-D view
                for matrix, shape in zip("AB", expert_shapes(layer, projection, each_rank), strict=True):
                    self.stacks[f"{name}.{projection}.lora_{matrix}.weight"] = (layer.num_experts, *shape)
                    for expert in range(layer.num_experts):
                        self.shapes[f"{name}.{expert}.{projection}.lora_{matrix}.weight"] = shape
        size = sum(rows * columns for rows, columns in self.shapes.values())
        self.master = torch.zeros(size, dtype=torch.float32, device=first.device)
        self.grad = torch.zeros_like(self.master)
        self.second: Tensor | None = None
        same = first.dtype == torch.float32
        self.work = self.master if same else torch.zeros(size, dtype=first.dtype, device=first.device)
        self.work_grad = self.grad if same else torch.zeros_like(self.work)
        views, grads = self.views(self.work), self.views(self.work_grad)
        self.merging: list[Any] = []
        for name, linear in linears.items():
            keys = f"{name}.lora_A.weight", f"{name}.lora_B.weight"
            module = LoraModule(linear, views[keys[0]], views[keys[1]], alpha / rank, merge=merge)
            self.merging += [module] if merge else []
            module.a.grad, module.b.grad = grads[keys[0]], grads[keys[1]]  # type: ignore[union-attr]
            model.set_submodule(name, module)
        of_experts: dict[str, Any] = {}
        for name, layer in experts.items():
            work, work_grad = (
                {p: stacked_views(v, f"{name}.0.{p}", layer.num_experts) for p in EXPERT_PROJECTIONS if p in targets}
                for v in (views, grads)
            )
            module = LoraExperts(layer, work, alpha, merge=merge)
            for projection, (grad_a, grad_b) in work_grad.items():
                module.a[projection].grad, module.b[projection].grad = grad_a, grad_b
            model.set_submodule(name, module)
            of_experts[name] = module
        self.experts = MergedExperts(of_experts if merge else {}, first.device)
        self.start(config.seed)

    def start(self, seed: int) -> None:
        """Initialise the adapter from the seed. B is zero, so the model's outputs do not change."""
        with torch.no_grad():
            self.master.zero_()
            for name, view in self.views(self.master).items():
                if name.endswith("lora_A.weight"):
                    view.copy_(torch.from_numpy(_initial(seed, name, tuple(view.shape))))
        self.refresh()

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return the matrices of a flat vector, by PEFT's names without their prefix."""
        parts = flat.split([rows * columns for rows, columns in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def refresh(self) -> None:
        """Round the master weights into the working copies, and update merged weights."""
        self.experts.finish_begun()
        if self.work is not self.master:
            self.work.copy_(self.master)
        self._merge()

    def _merge(self) -> None:
        for module in self.merging:
            module.merge()
        self.experts.changed()

    @contextmanager
    def with_weights(self, flat: Tensor) -> Iterator[None]:
        """Use other weights in the working copies, for forward passes without a gradient."""
        self.experts.finish_begun()
        kept = self.work.clone()
        self.work.copy_(flat)
        self._merge()
        try:
            yield
        finally:
            self.experts.finish_begun()
            self.work.copy_(kept)
            self._merge()

    def begin_second(self) -> None:
        self.second = self.master.detach().clone()

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Exchange the two adapters and their master weights, so that training updates the second."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        assert self.second is not None
        self.experts.finish_begun()
        first = self.master.clone()
        self.master.copy_(self.second)
        self.second.copy_(first)
        self.refresh()

    def collect(self) -> None:
        """Add the gradient of the last backward pass to the step's float32 gradient."""
        if self.work_grad is not self.grad:
            self.grad.add_(self.work_grad)
            self.work_grad.zero_()

    def export(self, folder: Path, base: Path, dtype: torch.dtype) -> None:
        """Write the adapter in PEFT format, for vLLM and peft. The second adapter is in a folder inside the first."""
        for place, flat in self._places(folder, self.master):
            write_peft(place, base, flat.detach(), dtype, self.shapes, self.config)

    def hand_over(self, folder: Path) -> None:
        """Write the adapter in the compute type, for a merging sampler on this machine."""
        for place, flat in self._places(folder, self.work):
            write_served(place, flat.detach().to(self.work.dtype), self.stacks, self.config.lora_alpha)

    def _places(self, folder: Path, first: Tensor) -> list[tuple[Path, Tensor]]:
        return [(folder, first), *([] if self.second is None else [(folder / AS_CRITIC, self.second)])]

    def load(self, folder: Path, base: Path, *, whole: bool = True) -> None:
        """Start from the adapter of an earlier training. whole, errors: see `read_peft`."""
        tensors = read_peft(folder, base, self.shapes, self.config, whole=whole)
        with torch.no_grad():
            for name, view in self.views(self.master).items():
                view.copy_(tensors[name])
        self.refresh()


def _initial(seed: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return A from U(±1/√d_in), as in peft, but determined by seed and name only. B is zero."""
    digest = hashlib.sha256(f"{seed}\x1flora\x1f{name}".encode()).digest()
    bound = 1 / np.sqrt(shape[1])
    draws = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "big"))).random(shape, dtype=np.float32)
    return ((2 * draws - 1) * bound).astype(np.float32)
