"""Prompts as token ids, the same from every engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from storage.errors import UserError
from tasks.engines.protocols import Generator, Request
from tasks.engines.sampling.sampler import RolloutRequest


def vocabulary_of(tokenizer: Any, model: Path) -> int:
    """One above the largest token id that a model can draw: its head may be wider than its tokenizer."""
    try:
        config = json.loads((model / "config.json").read_text())
    except FileNotFoundError:
        config = {}
    widths = (part.get("vocab_size") for part in (config, config.get("text_config", {})))
    return max(len(tokenizer), *(width for width in widths if isinstance(width, int)), 0)


def encode_prompt(
    tokenizer: Any, prompt: str, *, chat: bool, enable_thinking: bool, begun: str = ""
) -> tuple[int, ...]:
    """Token ids of a prompt; a chat prompt becomes one user message and the template's generation prompt. begun: what
    the completion begins with."""
    if not chat:
        return tuple(tokenizer(prompt + begun)["input_ids"])
    if tokenizer.chat_template is None:
        raise UserError(f"{tokenizer.name_or_path}: this arm needs a chat template and the model folder has none")
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=enable_thinking,
    )
    return tuple(tokenizer(text + begun, add_special_tokens=False)["input_ids"])


def check_lengths(requests: Sequence[Request], max_model_len: int) -> None:
    """Errors: UserError if a prompt leaves no room for its completion."""
    for request in requests:
        if len(request.prompt_ids) + request.decoding.max_tokens > max_model_len:
            raise UserError(
                f"a prompt of {len(request.prompt_ids)} tokens and max_tokens={request.decoding.max_tokens} do not fit"
                f" max_model_len={max_model_len}: raise the profile's max_model_len or lower max_tokens"
            )


def prompt_length(asked: RolloutRequest, generator: Generator) -> int:
    """Tokens of its prompt, with what its completion goes on from."""
    scaffold = asked.policy.scaffold
    how = {"chat": scaffold.chat, "enable_thinking": scaffold.enable_thinking}
    return len(generator.encode(scaffold.prompt(asked.problem), **how, begun=asked.begun))


def unfitting(length: int, max_tokens: int, context: int) -> str:
    """Why a prompt cannot be completed; empty if it can."""
    if length + max_tokens <= context:
        return ""
    return f"a prompt of {length} tokens and max_tokens={max_tokens} do not fit the context of {context}"
