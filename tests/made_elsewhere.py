"""Models and adapters of the demo's shape that nothing here has trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from flows.study.models import SHIPPED
from tasks.domain.grpo.learner_config import ALL_LINEAR


def another_model(folder: Path) -> Path:
    """The demo's model with every weight a little larger."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(SHIPPED["demo"], folder)
    weights = load_file(folder / "model.safetensors")
    larger = {name: tensor * 1.001 for name, tensor in weights.items()}
    save_file(larger, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def adapter(
    folder: Path,
    *,
    rank: int,
    targets: Sequence[str] = ALL_LINEAR,
    hidden: int | None = None,
    ranks: Mapping[str, int] | None = None,
) -> Path:
    """As peft writes it. hidden: of a model of another width. ranks: of layers that have their own."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    if hidden is not None:
        from safetensors.torch import save_file

        folder.mkdir()
        told = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": ["q_proj"]}
        (folder / "adapter_config.json").write_text(json.dumps(told))
        name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
        matrices = {name.format("A"): torch.zeros(rank, hidden), name.format("B"): torch.zeros(hidden, rank)}
        save_file(matrices, folder / "adapter_model.safetensors")
        return folder
    model = AutoModelForCausalLM.from_pretrained(SHIPPED["demo"], dtype=torch.float32)
    torch.manual_seed(0)
    config = LoraConfig(
        r=rank, lora_alpha=rank, target_modules=[*targets], rank_pattern={**(ranks or {})}, task_type="CAUSAL_LM"
    )
    adapted = get_peft_model(model, config)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 1e-3)
    adapted.save_pretrained(str(folder))
    return folder
