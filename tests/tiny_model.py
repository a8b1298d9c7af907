"""Base models for tests of engines: random weights, 2 layers, a tokenizer with a chat template. 1 s to make."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def write_tiny_mixture(folder: Path, **shape: Any) -> Path:
    """A random Qwen3-MoE of 4 experts with the demo's tokenizer, in float32."""
    import torch
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    small: dict[str, Any] = {"vocab_size": 640, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    small |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "tie_word_embeddings": True}
    small |= {"max_position_embeddings": 256, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    small |= {"decoder_sparse_step": 1, "norm_topk_prob": True}
    torch.manual_seed(0)
    Qwen3MoeForCausalLM(Qwen3MoeConfig(**small | shape)).save_pretrained(folder)
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
