"""A base model for tests of engines: random weights, 2 layers, a byte tokenizer with a chat template. 1 s to make."""

from __future__ import annotations

from pathlib import Path

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
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        eos_token_id=0,
        bos_token_id=None,
        pad_token_id=0,
    )
    if labels:
        config.num_labels = labels
        LlamaForSequenceClassification(config).save_pretrained(folder)
    else:
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
