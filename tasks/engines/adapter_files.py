"""Adapters in PEFT format that were made elsewhere: what a folder holds, and whether it can be served or trained on.

Every adapter is judged here, by its adapter_config.json and the header of its weights, when a study is read.
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
from tasks.engines.model_files import (
    ADAPTER_FILES,
    FLOATS,
    former_identity,
    remembered_digest,
    stored_weights,
    weights_identity,
    weights_of,
)

ADAPTER, WEIGHTS = ADAPTER_FILES
#: Beside PEFT's files: which base model the adapter belongs to. Those made elsewhere have none: taken as given.
OF_BASE = "base_model.json"
#: Before the name of a layer, in the files of every adapter.
PREFIX = "base_model.model."
#: Fields of adapter_config.json that the samplers here serve with these values only.
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
}
#: Ways to initialise LoRA that leave the base model as it is; with the others the adapter fits a changed base alone.
KEEPS_BASE = (None, True, False, "gaussian", "eva", "orthogonal")
_EXPERT = re.compile(r"\.experts\.\d+\.")


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """A folder's adapter. rank: of its linear layers; expert_rank: of experts, None without any. shapes: of its
    matrices, by PEFT's names without their prefix."""

    folder: Path
    rank: int
    expert_rank: int | None
    alpha: float
    shapes: Mapping[str, Sequence[int]]

    @property
    def targets(self) -> frozenset[str]:
        """The linear layers that it changes."""
        return frozenset(name.rpartition(".")[2] for name in _layers(self.shapes))

    @property
    def digest(self) -> str:
        """sha256 over its two files."""
        lines = [f"{name}:{remembered_digest(self.folder / name)}\n" for name in ADAPTER_FILES]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def check_base(self, base: Path) -> None:
        """base: the folder of a model. Errors: UserError for an adapter that was trained on other weights, or that
        names layers or widths which the model does not have: engines would leave those out, or fail at them."""
        marked = self.folder / OF_BASE
        trained_on = json.loads(marked.read_text()) if marked.is_file() else None
        if trained_on and trained_on["weights_identity"] not in (weights_identity(base), former_identity(base)):
            raise UserError(
                f"adapter {self.folder} was trained on {trained_on['name']}, and the weights in {base} are not those:"
                " name that model's folder, or start without the adapter"
            )
        stored = stored_weights(base)
        there = {name.rpartition(".")[0] for name in stored}
        with_experts = {name.partition(".experts.")[0] for name in there if ".experts" in name}
        # transformers adds this to the names of a model that was saved without its head
        headless = "" if any(name.startswith("model.") for name in there) else "model."
        for name in _layers(self.shapes):
            own = next((one for one in (name, name.removeprefix(headless)) if one in there), "")
            if not own and not (_EXPERT.search(name) and name.partition(".experts.")[0] in with_experts):
                raise UserError(
                    f"adapter {self.folder} changes {name}, and {base} has no such layer: name the base model that the"
                    " adapter was trained on, or rename the matrices as that model's file names its layers"
                )
            weight = stored.get(f"{own}.weight")
            width = self.shapes[f"{name}.lora_B.weight"][0], self.shapes[f"{name}.lora_A.weight"][1]
            if weight is not None and weight.dtype in FLOATS and weight.shape != width:
                raise UserError(
                    f"adapter {self.folder}: {name} is {_by(width)}, and {_by(weight.shape)} in {base}: name the base"
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
    if (way := config.get("init_lora_weights")) not in KEEPS_BASE:
        raise UserError(
            f"adapter {folder}: init_lora_weights is {way!r}, which changed the base model too; convert it to plain"
            " LoRA first (peft: save_pretrained with path_initial_model_for_weight_conversion)"
        )
    for name, plain in PLAIN.items():
        if config.get(name) not in plain:
            raise UserError(f"adapter {folder}: {name} is {config[name]!r}, which is not served; merge it into a model")
    shapes = _shapes(folder / WEIGHTS)
    alpha = float(config.get("lora_alpha") or rank)
    return AdapterFiles(folder, *_two_ranks(folder, config, shapes), alpha, shapes)


def _layers(shapes: Mapping[str, Sequence[int]]) -> list[str]:
    return [name.removesuffix(".lora_A.weight") for name in shapes if name.endswith(".lora_A.weight")]


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


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of an adapter's matrices, by PEFT's names without their prefix.

    Errors: UserError for a file with anything but pairs of matrices of linear layers of the decoder.
    """
    found = {name: weight.shape for name, weight in weights_of(path).items()}
    if alien := next((name for name in found if not name.startswith(PREFIX)), None):
        raise UserError(f"{path}: {alien} does not begin with {PREFIX}, so engines would leave it out; rename it")
    shapes = {name.removeprefix(PREFIX): shape for name, shape in found.items()}
    layers = _layers(shapes)
    pairs = {f"{name}.lora_{matrix}.weight" for name in layers for matrix in "AB"}
    others = sorted(pairs ^ shapes.keys()) or [name for name in layers if name.rpartition(".")[2] == "lm_head"]
    if others:
        raise UserError(f"{path}: {others[0]} is not one of a layer's two LoRA matrices; merge it into a model")
    if not layers:
        raise UserError(f"{path} holds no LoRA matrices; name a folder in PEFT format")
    return shapes


def _by(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))
