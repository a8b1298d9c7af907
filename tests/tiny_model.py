"""Base models for tests of engines: random weights, 2 layers, a tokenizer with a chat template. 1 s to make."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.study.models import SHIPPED
from tasks.domain.grpo.learner_config import ALL_LINEAR

DEMO = Path(__file__).resolve().parents[1] / "models" / "demo"
TEMPLATE = "{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"


def write_tiny_model(folder: Path, labels: int = 0) -> Path:
    """labels: of a reward model; 0: a model that writes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: i for i, text in enumerate(["<|end|>", "<|user|>", "<|assistant|>", *letters])}
    core = Tokenizer(models.BPE(vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|end|>",
        pad_token="<|end|>",
        additional_special_tokens=["<|user|>", "<|assistant|>"],
    )
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 32}
    shape |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 1024}
    config = LlamaConfig(vocab_size=len(vocabulary), eos_token_id=0, bos_token_id=None, pad_token_id=0, **shape)
    if labels:
        config.num_labels = labels
        LlamaForSequenceClassification(config).save_pretrained(folder)
    else:
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_tiny_mixture(folder: Path, max_shard_size: str | int = "1GB", **shape: Any) -> Path:
    """A random Qwen3-MoE of 4 experts with the demo's tokenizer, in float32."""
    import torch
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    small: dict[str, Any] = {"vocab_size": 640, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    small |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "tie_word_embeddings": True}
    small |= {"max_position_embeddings": 256, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    small |= {"decoder_sparse_step": 1, "norm_topk_prob": True}
    torch.manual_seed(0)
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**small | shape))
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(DEMO / name, folder / name)
    return folder


#: A decoder of two layers, in the fields that most types of transformers have.
SMALL: dict[str, Any] = {"vocab_size": 640, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
SMALL |= {"head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
SMALL |= {"tie_word_embeddings": False, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4}
SMALL |= {"num_experts_per_tok": 2, "moe_intermediate_size": 32, "pad_token_id": 0, "eos_token_id": 0}
SMALL |= {"bos_token_id": 0}


def write_tiny_of(kind: str, folder: Path, each: Callable[[Any], Any] = lambda weight: weight) -> Path:
    """A decoder of any type of transformers, with weights large enough for every part of it to show in its log-probs.
    No tokenizer. each: what becomes of a weight. Errors: whatever it says to such a shape."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    known = AutoConfig.for_model(kind).to_dict()
    if any(isinstance(value, dict) and len(value) > 12 for value in known.values()):
        raise ValueError(f"{kind}: a model of several, each with a config")
    config = AutoConfig.for_model(kind, **{n: v for n, v in SMALL.items() if n in known or n == "head_dim"})
    with torch.device("meta"):
        if sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters()) > 10**7:
            raise ValueError(f"{kind}: not small by these fields")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            norm = weight.ndim == 1 and name.endswith("weight")
            weight.copy_(each(torch.randn_like(weight) * (0.1 if weight.ndim > 1 or norm else 0.3) + norm))
        model(input_ids=torch.arange(1, 9)[None])  # a shape that it cannot compute is none
    model.save_pretrained(folder)
    return folder


#: The shape of Qwen3-30B-A3B, for questions of memory.
CONFIG = {
    "model_type": "qwen3_moe",
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 151_936,
}


# Models and adapters of the demo's shape that nothing here has trained.


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


# Weight files as large as a model's, of which nothing is written but the header.


def hollow_weights(file: Path, values: int, dtype: str = "BF16") -> Path:
    """One weight of so many values."""
    size = values * {"BF16": 2, "F32": 4}[dtype]
    told = {"weight": {"dtype": dtype, "shape": [values], "data_offsets": [0, size]}} if values else {}
    header = json.dumps(told).encode()
    with file.open("wb") as weights:
        weights.write(len(header).to_bytes(8, "little") + header)
        weights.truncate(8 + len(header) + size)
    return file
