"""Adapters in PEFT format that were made elsewhere: what a folder holds, and whether it can be served or trained on.

Weights are not loaded: the header of their file says names and shapes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.errors import UserError
from tasks.engines.model_files import ADAPTER_FILES, remembered_digest

ADAPTER, WEIGHTS = ADAPTER_FILES
#: Beside PEFT's files: which base model the adapter belongs to. Those made elsewhere have none: taken as given.
OF_BASE = "base_model.json"
#: Fields of adapter_config.json that no sampler here can serve, unless they are as given.
PLAIN: Mapping[str, tuple[object, ...]] = {
    "use_dora": (None, False),
    "bias": (None, "none"),
    "modules_to_save": (None, []),
    "alpha_pattern": (None, {}),
    "use_rslora": (None, False),
}
LAYER = re.compile(r"\.layers\.(\d+)\.")
_EXPERT = re.compile(r"\.experts\.\d+\.")
#: Linear layers whose input is the hidden state.
READS_HIDDEN = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """A folder's adapter. rank: of its linear layers; expert_rank: of experts, null without any. targets: the linear
    layers that it changes. hidden: the width that they read; layers: how many there are at least; null where no matrix
    says so."""

    folder: Path
    rank: int
    expert_rank: int | None
    alpha: float
    targets: frozenset[str]
    hidden: int | None
    layers: int

    @property
    def digest(self) -> str:
        """sha256 over its two files."""
        lines = [f"{name}:{remembered_digest(self.folder / name)}\n" for name in ADAPTER_FILES]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def check_base(self, config: Mapping[str, Any], base: str) -> None:
        """config: of the base model. Errors: UserError for an adapter of a model of another shape."""
        width, layers = config.get("hidden_size"), config.get("num_hidden_layers")
        if self.hidden is not None and width is not None and self.hidden != width:
            raise UserError(
                f"adapter {self.folder} is of a model with hidden states of {self.hidden}, and {base} has {width}: name"
                " the base model that it was trained on"
            )
        if layers is not None and self.layers > layers:
            raise UserError(
                f"adapter {self.folder} is of a model with {self.layers} layers, and {base} has {layers}: name the base"
                " model that it was trained on"
            )

    @property
    def largest_rank(self) -> int:
        return max(self.rank, self.expert_rank or 0)

    def check_recipe(self, rank: int, alpha: int, targets: Sequence[str], expert_rank: int | None) -> None:
        """expert_rank: null: as rank. Errors: UserError for an adapter that a training of this recipe could not go on
        with."""
        differ = []
        if self.rank != rank:
            differ.append(f"rank {self.rank} and not training.lora_rank={rank}")
        if self.expert_rank not in (None, expert_rank or rank):
            differ.append(f"experts' rank {self.expert_rank} and not training.expert_rank={expert_rank or rank}")
        if self.alpha != alpha:
            differ.append(f"alpha {self.alpha:g} and not training.lora_alpha={alpha}")
        if self.targets != {*targets}:
            theirs, ours = ",".join(sorted(self.targets)), ",".join(targets)
            differ.append(f"targets {theirs} and not training.target_modules={ours}")
        if differ:
            raise UserError(
                f'adapter {self.folder} has {", ".join(differ)}: change the recipe, or write trained_as = "none" to'
                " evaluate it as it is"
            )


def adapter_files(folder: Path) -> AdapterFiles:
    """Errors: UserError for a folder that holds no adapter that could be served."""
    config = adapter_config(folder)
    kind, rank = config.get("peft_type"), config.get("r")
    if kind != "LORA" or not isinstance(rank, int) or rank < 1:
        raise UserError(f"adapter {folder}: it is {kind or 'of no kind'}, of rank {rank}; only LoRA is served")
    for name, plain in PLAIN.items():
        if config.get(name) not in plain:
            raise UserError(f"adapter {folder}: {name} is {config[name]!r}, which is not served; merge it into a model")
    shapes = _shapes(folder / WEIGHTS)
    reads = {
        name.rpartition(".lora_A.")[0].rpartition(".")[2]: shape for name, shape in shapes.items() if ".lora_A." in name
    }
    if not reads:
        raise UserError(f"adapter {folder}: {WEIGHTS} holds no LoRA matrices; name a folder in PEFT format")
    hidden = next((reads[name][-1] for name in READS_HIDDEN if name in reads), None)
    layers = 1 + max((int(found[1]) for name in shapes if (found := LAYER.search(name))), default=-1)
    alpha = float(config.get("lora_alpha") or rank)
    return AdapterFiles(folder, *_two_ranks(folder, config, shapes), alpha, frozenset(reads), hidden, layers)


def ranks(shapes: Mapping[str, Sequence[int]]) -> tuple[dict[str, int], dict[str, int]]:
    """(of linear layers, of experts), each by its name.

    >>> ranks({"mlp.experts.3.up_proj.lora_A.weight": (4, 9), "attn.q_proj.lora_A.weight": (8, 9)})
    ({'attn.q_proj': 8}, {'mlp.experts.3.up_proj': 4})
    """
    rows = {name.rpartition(".lora_A.")[0]: shape[0] for name, shape in shapes.items() if ".lora_A." in name}
    experts = {name: rank for name, rank in rows.items() if _EXPERT.search(name)}
    return {name: rank for name, rank in rows.items() if name not in experts}, experts


def _two_ranks(folder: Path, config: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> tuple[int, int | None]:
    """Of linear layers, and of experts where there are any. Errors: UserError if either has several."""
    linear, experts = ({*found.values()} for found in ranks(shapes))
    if not config.get("rank_pattern"):
        return config["r"], config["r"] if experts else None
    if len(linear) != 1 or len(experts) > 1:
        raise UserError(
            f"adapter {folder}: rank_pattern is {config['rank_pattern']!r}, and only one rank of linear layers and one"
            " of experts are served; merge it into a model"
        )
    return linear.pop(), experts.pop() if experts else None


def adapter_config(folder: Path) -> dict[str, Any]:
    """Errors: UserError if the folder holds no readable PEFT adapter."""
    try:
        config = json.loads((folder / ADAPTER).read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: no readable {ADAPTER} ({error}); name a folder in PEFT format") from None
    if not (folder / WEIGHTS).is_file():
        raise UserError(f"{folder}: {WEIGHTS} is missing; the adapter was not written whole")
    return config


def _shapes(path: Path) -> dict[str, list[int]]:
    """Shapes of a safetensors file's matrices by name."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(size, 100 << 20)))
        return {name: told["shape"] for name, told in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: no safetensors file ({error})") from None
