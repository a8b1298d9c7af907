"""Interfaces of the engines that stages use, without implementations.

A generator turns token prompts into completions with behaviour log-probs. A request contains everything that changes a
result; an engine only decides how the work is done.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from tasks.domain.policies import ServedAdapter
from tasks.domain.scaffolds import Prompt, Scaffold

Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """The sampling parameters of one rollout, which are part of its identity. Training needs rollouts of temperature 1
    and of the whole distribution, so that the recorded log-probs are those of the policy."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to sample. The engine returns `key` with the completion. prompt: a text or the messages of a chat;
    engines without a tokenizer use it instead of prompt_ids."""

    key: int
    prompt_ids: tuple[int, ...]
    seed: int
    decoding: Decoding
    prompt: Prompt = ""

    @property
    def num_prompt_tokens(self) -> int:
        """Return the number of tokens of the prompt. Without ids, count one token for three characters."""
        return len(self.prompt_ids) or len(str(self.prompt)) // 3


@dataclass(frozen=True, slots=True)
class Completion:
    """A sampled completion. text: with the stop string that ended it. logprobs_T: float32 behaviour log-probs of
    token_ids. counted: prompt and completion tokens, as a server counts them that returns no token_ids."""

    key: int
    text: str
    token_ids: list[int]
    logprobs_T: np.ndarray
    finish: Finish
    counted: tuple[int, int] | None = None


class Generator(Protocol):
    """A sampling engine. The manifest has its name, version and serving (how adapters and log-probs are computed)."""

    name: str
    version: str
    serving: str

    def encode(self, scaffold: Scaffold, problem: str, begun: str = "") -> tuple[int, ...]:
        """Return the token ids of a problem's prompt. begun: the given beginning of the completion."""
        ...

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        """Yield one completion for each request, as it finishes. A deque of requests is emptied during sampling.
        Requests that are appended to it in the meantime are sampled too."""
        ...

    def close(self) -> None: ...
