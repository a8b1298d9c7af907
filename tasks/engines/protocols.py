"""Interfaces of the engines that stages use, without implementations.

A generator turns token prompts into completions with behaviour log-probs. Requests contain everything that changes a
result; engines only determine how the work is done.
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
    """The sampling parameters of one rollout, which are part of its identity. Rollouts for training need temperature 1
    and the whole distribution, so that the recorded log-probs are those of the policy."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to sample. The engine returns `key` with the completion. prompt: a text or the messages of a chat;
    engines without a tokenizer use it in place of prompt_ids."""

    key: int
    prompt_ids: tuple[int, ...]
    seed: int
    decoding: Decoding
    prompt: Prompt = ""

    @property
    def num_prompt_tokens(self) -> int:
        """Return the number of tokens of the prompt; without ids, one for three characters."""
        return len(self.prompt_ids) or len(str(self.prompt)) // 3


@dataclass(frozen=True, slots=True)
class Completion:
    """A sampled completion. text includes the stop string that ended it. logprobs_T: float32 behaviour log-probs of
    token_ids. counted: prompt and completion tokens by the count of a server that returns no token_ids."""

    key: int
    text: str
    token_ids: list[int]
    logprobs_T: np.ndarray
    finish: Finish
    counted: tuple[int, int] | None = None


class Generator(Protocol):
    """A sampling engine. The manifest has its name, version and serving: how adapters and log-probs are computed."""

    name: str
    version: str
    serving: str

    def encode(self, scaffold: Scaffold, problem: str, begun: str = "") -> tuple[int, ...]:
        """Return the token ids of a problem's prompt. begun: given start of the completion."""
        ...

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        """Yield completions as they finish, one for each request. A deque of requests is emptied during sampling, and
        requests that are appended to it meanwhile are sampled too."""
        ...

    def close(self) -> None: ...
