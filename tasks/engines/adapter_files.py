"""Adapter files: check whether an adapter can be served or trained on, read it, and write the learner's.

Stored adapters have PEFT's format, in which a mixture's adapter has 37,000 named matrices. Reading them takes longer
than merging the weights. So a sampler that merges gets the next step's adapter as `served.safetensors`: in the
sampler's type, with the experts of a layer and projection in one array.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import ServedAdapter
from tasks.engines.model_files import (
    ADAPTER_FILES,
    FLOATS,
    former_identity,
    remembered_digest,
    stored_weights,
    weights_identity,
    weights_of,
)
from tasks.engines.tinker_service import REMOTE

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ADAPTER, WEIGHTS = ADAPTER_FILES
#: File with the next step's adapter for a sampler that merges, next to PEFT's files or without them.
SERVED = "served.safetensors"
#: File with the base model of the adapter. Imported adapters have none, so their base is not checked.
OF_BASE = "base_model.json"
#: Prefix of layer names in adapter files.
PREFIX = "base_model.model."
#: Fields of adapter_config.json for which the samplers support only these values.
PLAIN: Mapping[str, tuple[object, ...]] = {
    "use_dora": (None, False),
    "bias": (None, "none"),
    "lora_bias": (None, False),
    "modules_to_save": (None, []),
    "trainable_token_indices": (None, [], {}),
    "alora_invocation_tokens": (None, []),
    "layer_replication": (None, []),
    "alpha_pattern": (None, {}),
    "use_rslora": (None, False),
    # any other initialisation changes the base weights
    "init_lora_weights": (None, True, False, "gaussian", "eva", "orthogonal"),
}
_EXPERT = re.compile(r"\.experts\.\d+\.")
_NAMED_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(\w+)")
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """An adapter in a folder. rank: of linear layers; expert_rank: of experts, or None. shapes: those of its matrices,
    by PEFT's names without their prefix."""

    folder: Path
    rank: int
    expert_rank: int | None
    alpha: float
    shapes: Shapes

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(sorted({name.rpartition(".")[2] for name in _layers(self.shapes)}))

    @property
    def digest(self) -> str:
        lines = [f"{name}:{remembered_digest(self.folder / name)}\n" for name in ADAPTER_FILES]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def check_base(self, base: Path) -> None:
        """Raise UserError if the adapter was trained on other weights than those in `base`, or if the model lacks the
        adapter's layers or widths. Engines would ignore such layers or fail."""
        marked = self.folder / OF_BASE
        trained_on = json.loads(marked.read_text()) if marked.is_file() else None
        if trained_on and trained_on["weights_identity"] not in (weights_identity(base), former_identity(base)):
            raise UserError(
                f"adapter {self.folder} was trained on {trained_on['name']}, but {base} has other weights: name the"
                f" folder of {trained_on['name']}, or start without the adapter"
            )
        stored = stored_weights(base)
        there = {name.rpartition(".")[0]: weight for name, weight in stored.items()}
        with_experts = {name.partition(".experts.")[0] for name in there if ".experts" in name}
        # if a model was saved without its head, transformers adds this to the names
        headless = "" if any(name.startswith("model.") for name in there) else "model."
        for name in _layers(self.shapes):
            weight = there.get(name) or there.get(name.removeprefix(headless))
            if not weight and not (_EXPERT.search(name) and name.partition(".experts.")[0] in with_experts):
                raise UserError(
                    f"adapter {self.folder} changes the layer {name}, but {base} has no such layer: name the base model"
                    " that the adapter was trained on, or rename the matrices after the layers in that model's file"
                )
            width = self.shapes[f"{name}.lora_B.weight"][0], self.shapes[f"{name}.lora_A.weight"][1]
            if weight and weight.dtype in FLOATS and weight.shape != width:
                theirs, ours = (" x ".join(map(str, shape)) for shape in (width, weight.shape))
                raise UserError(
                    f"adapter {self.folder}: {name} is {theirs}, but {ours} in {base}: name the base model that the"
                    " adapter was trained on"
                )

    @property
    def largest_rank(self) -> int:
        return max(self.rank, self.expert_rank or 0)

    def check_recipe(self, learner: LearnerConfig) -> None:
        """Raise UserError if a training with this recipe cannot start from the adapter."""
        experts = None if self.expert_rank is None else learner.expert_rank or learner.lora_rank
        named = {
            "lora_rank": (self.rank, learner.lora_rank),
            "expert_rank": (self.expert_rank, experts),
            "lora_alpha": (f"{self.alpha:g}", str(learner.lora_alpha)),
            "target_modules": (",".join(self.targets), ",".join(sorted(learner.target_modules))),
        }
        differ = [f"{name} {found} and not {wanted}" for name, (found, wanted) in named.items() if found != wanted]
        if differ:
            raise UserError(
                f"adapter {self.folder} differs from the training's settings: {'; '.join(differ)}. Change these, or"
                ' write trained_as = "none" to evaluate the adapter unchanged'
            )


def adapter_files(folder: Path) -> AdapterFiles:
    """Read the adapter in a folder. Raise UserError for an adapter that cannot be served."""
    config = adapter_config(folder)
    kind, rank = config.get("peft_type"), config.get("r")
    if kind != "LORA" or not isinstance(rank, int) or rank < 1:
        raise UserError(
            f"adapter {folder}: its type is {kind or 'missing'} and its rank {rank}; only LoRA can be served"
        )
    for name, plain in PLAIN.items():
        if config.get(name) not in plain:
            raise UserError(
                f"adapter {folder}: Varband cannot serve {name}={config[name]!r}; merge the adapter into a model, or"
                " convert it to plain LoRA (peft: save_pretrained with path_initial_model_for_weight_conversion)"
            )
    shapes = _shapes(folder / WEIGHTS)
    linear, experts = ({*found.values()} for found in ranks(shapes))
    if not config.get("rank_pattern"):
        linear, experts = {rank}, {rank} if experts else set()
    if len(linear) != 1 or len(experts) > 1:
        raise UserError(
            f"adapter {folder}: rank_pattern is {config['rank_pattern']!r}, but Varband serves one rank for linear"
            " layers and one for experts; merge the adapter into a model"
        )
    alpha = float(config.get("lora_alpha") or rank)
    return AdapterFiles(folder, linear.pop(), experts.pop() if experts else None, alpha, shapes)


def _layers(shapes: Iterable[str]) -> list[str]:
    return [name.removesuffix(".lora_A.weight") for name in shapes if name.endswith(".lora_A.weight")]


def ranks(shapes: Shapes) -> tuple[dict[str, int], dict[str, int]]:
    """Return (ranks of linear layers, ranks of experts), by name.

    >>> ranks({"mlp.experts.3.up_proj.lora_A.weight": (4, 9), "attn.q_proj.lora_A.weight": (8, 9)})
    ({'attn.q_proj': 8}, {'mlp.experts.3.up_proj': 4})
    """
    rows = {name: shapes[f"{name}.lora_A.weight"][0] for name in _layers(shapes)}
    experts = {name: rank for name, rank in rows.items() if _EXPERT.search(name)}
    return {name: rank for name, rank in rows.items() if name not in experts}, experts


def adapter_config(folder: Path) -> dict[str, Any]:
    """Return adapter_config.json. Raise UserError if the folder has no readable PEFT adapter."""
    try:
        config = json.loads((folder / ADAPTER).read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: cannot read {ADAPTER} ({error}); name a folder in PEFT format") from None
    if not (folder / WEIGHTS).is_file():
        raise UserError(f"{folder}: {WEIGHTS} is missing, so the adapter is incomplete")
    return config


def _shapes(path: Path) -> Shapes:
    """Return the shapes of an adapter's matrices, by PEFT's names without their prefix. Raise UserError if the file has
    anything but pairs of matrices of the decoder's linear layers."""
    found = {name: weight.shape for name, weight in weights_of(path).items()}
    shapes = {name.removeprefix(PREFIX): shape for name, shape in found.items() if name.startswith(PREFIX)}
    layers = [name for name in _layers(shapes) if name.rpartition(".")[2] != "lm_head"]
    pairs = {f"{PREFIX}{name}.lora_{matrix}.weight" for name in layers for matrix in "AB"}
    if others := sorted(pairs ^ found.keys()):
        raise UserError(
            f"{path}: {others[0]} is not one of a layer's two LoRA matrices, named {PREFIX}*.lora_A.weight and lora_B:"
            " engines would ignore it; rename it, or merge the adapter into a model"
        )
    if not layers:
        raise UserError(f"{path} has no LoRA matrices; name a folder with an adapter in PEFT format")
    return shapes


@dataclass(frozen=True, slots=True)
class Products:
    """The matrices of an adapter. pairs: (A, B) by name in the base model. The experts of a layer have one pair (A:
    ExRxI, B: ExOxR), by `experts.<projection>`. Matrices may have different ranks."""

    pairs: Mapping[str, tuple[Tensor, Tensor]]
    alpha: float

    def scale(self, name: str) -> float:
        """Return alpha / rank of the matrices with this name."""
        return self.alpha / self.pairs[name][0].shape[-2]


def served_file(folder: Path) -> Path:
    """Return the adapter file that an engine reads. Raise UserError if the folder has no adapter file."""
    for name in (SERVED, WEIGHTS, REMOTE):
        if (folder / name).is_file():
            return folder / name
    raise UserError(
        f"{folder}: the adapter is missing. If its training is not finished, remove its newest checkpoint folder and"
        " give the same command again; it resumes from the previous checkpoint"
    )


def served_name(adapter: ServedAdapter) -> str:
    """Return the adapter's name for engines and servers: its own, and a hash of the file's path, inode, size and time.
    So an engine never has two adapters under one name."""
    file = served_file(adapter.folder)
    at = file.stat()
    stamp = f"{file.resolve()}:{at.st_dev}:{at.st_ino}:{at.st_size}:{at.st_mtime_ns}"
    return f"{adapter.name}-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}"


def read_served(folder: Path, device: str = "cpu") -> Products:
    """Return an adapter from a file of either format. Raise ValueError for layers other than linear ones and
    experts."""
    from safetensors import safe_open
    from safetensors.torch import load_file

    file = served_file(folder)
    stored = load_file(file, device=device)
    tensors = {name.removeprefix(PREFIX): tensor for name, tensor in stored.items()}
    layers = _layers({name: tensor.shape for name, tensor in tensors.items()})
    pairs = {n: (tensors[f"{n}.lora_A.weight"], tensors[f"{n}.lora_B.weight"]) for n in layers}
    if 2 * len(pairs) != len(tensors):
        raise ValueError(f"{folder}: the adapter changes other than linear layers ({len(tensors)} matrices)")
    if file.name == WEIGHTS:
        return Products(_stacked(pairs), json.loads((folder / ADAPTER).read_text())["lora_alpha"])
    with safe_open(file, "pt") as opened:
        return Products(pairs, float(opened.metadata()["alpha"]))


def _stacked(pairs: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, tuple[Tensor, Tensor]]:
    """Stack the experts of each layer and projection, which PEFT's files name one by one."""
    import torch

    found = {name: pair for name, pair in pairs.items() if not _NAMED_EXPERT.fullmatch(name)}
    experts: dict[str, dict[int, tuple[Tensor, Tensor]]] = {}
    for name, pair in pairs.items():
        if at := _NAMED_EXPERT.fullmatch(name):
            experts.setdefault(f"{at[1]}.{at[3]}", {})[int(at[2])] = pair
    for name, by_number in experts.items():
        ordered = [by_number[n] for n in range(len(by_number))]
        found[name] = torch.stack([a for a, _ in ordered]), torch.stack([b for _, b in ordered])
    return found


def write_served(folder: Path, flat: Tensor, stacks: Shapes, alpha: float) -> None:
    """Write an adapter for a sampler that merges. flat: all matrices of `stacks` in one vector, on any device."""
    _write(folder / SERVED, flat, stacks, {"alpha": str(alpha)})


def write_peft(
    folder: Path, base: Path, flat: Tensor, dtype: torch.dtype, shapes: Shapes, learner: LearnerConfig
) -> None:
    """Write an adapter in PEFT format in `dtype`. flat: all matrices of `shapes` in one vector, on any device."""
    _write(folder / WEIGHTS, flat.to(dtype), {PREFIX + name: shape for name, shape in shapes.items()}, {"format": "pt"})
    of_base = {"name": base.name, "weights_identity": weights_identity(base)}
    (folder / OF_BASE).write_text(json.dumps(of_base, indent=2) + "\n")
    (folder / ADAPTER).write_text(json.dumps(_config(base, shapes, learner), indent=2, sort_keys=True) + "\n")


def _write(file: Path, flat: Tensor, shapes: Shapes, metadata: dict[str, str]) -> None:
    from safetensors.torch import save_file

    file.parent.mkdir(parents=True, exist_ok=True)
    parts = flat.cpu().split([math.prod(shape) for shape in shapes.values()])
    save_file({n: p.view(shape) for (n, shape), p in zip(shapes.items(), parts, strict=True)}, file, metadata)


def _config(base: Path, shapes: Shapes, learner: LearnerConfig) -> dict[str, object]:
    """Return adapter_config.json. If experts have their own rank, `r` is theirs and other layers are exceptions,
    because peft splits fused experts by `r` and ignores rank patterns."""
    linear, experts = ranks(shapes)
    of_linear = {".".join(name.split(".")[-2:]): rank for name, rank in linear.items()}
    rank = max({*experts.values()} or {*linear.values()})
    config: dict[str, object] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "inference_mode": True,
        "base_model_name_or_path": base.name,
        "r": rank,
        "lora_alpha": learner.lora_alpha,
        "target_modules": sorted(learner.target_modules),
    }
    return config | ({"rank_pattern": of_linear} if {*of_linear.values()} - {rank} else {})


def read_peft(
    folder: Path, base: Path, shapes: Shapes, learner: LearnerConfig, *, whole: bool = True
) -> dict[str, Tensor]:
    """Return the matrices by name. Raise UserError for an adapter that does not fit base, recipe and shapes. whole: if
    False, the adapter may lack layers, and their matrices are zeros."""
    import torch
    from safetensors.torch import load_file

    adapter = adapter_files(folder)
    adapter.check_base(base)
    adapter.check_recipe(learner)
    tensors = {name.removeprefix(PREFIX): tensor for name, tensor in load_file(folder / WEIGHTS).items()}
    if not whole:
        tensors = {name: torch.zeros(*shape) for name, shape in shapes.items()} | tensors
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != dict(shapes):
        raise UserError(
            f"{folder}: the adapter was trained on another base model: its {len(tensors)} matrices do not match the"
            f" {len(shapes)} that this base model needs"
        )
    if not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise UserError(f"{folder}: the adapter has weights that are not finite numbers; start from an earlier adapter")
    return tensors
