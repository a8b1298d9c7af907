"""Log-probs of sampled tokens, kept where they were computed until a rollout ends.

An engine holds its running requests in slots. A slot is used again; a request that is pre-empted comes back in another
one, computes its prompt and what it had written again, and goes on from there. So a request's log-probs are segments:
each begins at the first token that was sampled in its slot and is cut where the next one begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a request runs. prompt, prefill: tokens of its prompt, and of what it computes before it samples: the
    same, or more after a pre-emption. end: tokens of the longest sequence that it may become."""

    index: int
    prompt: int
    prefill: int
    end: int


@dataclass(slots=True)
class KeptLogprobs:
    """table_SL: float32; [slot, position of the token before]. One row more than there are slots takes what vLLM masks.

    A row is written at positions before `prefill` too, while a prompt is computed in chunks: those are never read.
    """

    table_SL: Tensor
    segments: dict[str, list[tuple[int, Tensor]]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def write(self, slots_B: Tensor, positions_B: Tensor, logprobs_B: Tensor) -> None:
        self.table_SL[slots_B.long(), positions_B.long()] = logprobs_B

    def release(self, request: str, slot: Slot) -> None:
        """Keep what a request sampled in a slot that is about to be used again."""
        if request in self.taken:
            self.taken.discard(request)
            return
        row = self.table_SL[slot.index, slot.prefill - 1 : slot.end - 1]
        self.segments.setdefault(request, []).append((slot.prefill - slot.prompt, row.clone()))

    def take(self, lengths: dict[str, int], running: dict[str, Slot]) -> Tensor:
        """Log-probs of whole rollouts, end to end in the order of `lengths` (tokens of each); they are forgotten here.

        running: slots of requests that ended but were not released yet. Errors: KeyError for a request that never ran.
        """
        import torch

        pieces: list[Tensor] = []
        for request, length in lengths.items():
            found = self.segments.pop(request, [])
            if slot := running.get(request):
                self.taken.add(request)
                row = self.table_SL[slot.index, slot.prefill - 1 : slot.end - 1]
                found = [*found, (slot.prefill - slot.prompt, row)]
            if not found:
                raise KeyError(f"no log-probs were kept of request {request}")
            starts = [start for start, _ in found[1:]] + [length]
            kept = [piece[: max(0, end - start)] for (start, piece), end in zip(found, starts, strict=True)]
            if sum(len(piece) for piece in kept) != length:
                raise RuntimeError(f"{length} tokens of request {request} and other log-probs were kept")
            pieces += kept
        return torch.cat(pieces) if pieces else self.table_SL.new_empty(0)

    def forget(self) -> None:
        """Drop what nobody will ask for: rollouts that were given up."""
        self.segments.clear()
        self.taken.clear()
