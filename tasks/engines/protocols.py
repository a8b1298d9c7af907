"""What the stages ask of the outside world. No implementation lives here.

A generator turns token prompts into completions with behaviour log-probs. Requests carry everything that changes a
result; engines carry only how it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from tasks.domain.policies import ServedAdapter

Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Sampling parameters of one rollout: part of its identity. T=1 and no truncation of the distribution
    wherever the rollout is trained on, so that the recorded log-probs are those of the policy."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to sample. `key` is opaque to the engine and comes back with the completion."""

    key: int
    prompt_ids: tuple[int, ...]
    seed: int
    decoding: Decoding


@dataclass(frozen=True, slots=True)
class Completion:
    """text includes the stop string where one ended it. logprobs_T: float32 behaviour log-probs of token_ids."""

    key: int
    text: str
    token_ids: list[int]
    logprobs_T: np.ndarray
    finish: Finish


class Generator(Protocol):
    """`name` and `version` go into the manifest: which engine ran; and `serving`, how it had adapters and log-probs."""

    name: str
    version: str
    serving: str

    def encode(self, prompt: str, *, chat: bool, enable_thinking: bool, begun: str = "") -> tuple[int, ...]:
        """Token ids of a prompt. begun: what the completion begins with, which is not sampled."""
        ...

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        """Completions in the order in which they finish; each request exactly once. A deque is emptied as it goes, and
        what is appended to it meanwhile is sampled too."""
        ...

    def close(self) -> None: ...
