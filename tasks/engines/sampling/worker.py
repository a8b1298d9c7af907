"""What this project adds to vLLM's worker: log-probs that stay on the GPU, adapters merged into the weights.

vLLM mixes the class into its worker (`worker_extension_cls`) and calls its methods by name (`collective_rpc`), in
whichever process the model runs. `abilities` says what of it this engine can do: the others are called only then.

An engine holds its running requests in slots. A slot is used again; a request that is pre-empted comes back in another
one, computes its prompt and what it had written again, and goes on from there. So a request's log-probs are segments:
each begins at the first token that was sampled in its slot and is cut where the next one begins.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor

from tasks.engines.sampling.served_weights import base_weights, mergeable, serve

#: The arguments of the sampler's `sample` that log-probs are kept by, and what its runner must have besides.
_SAMPLER_ARGUMENTS = {"logits", "expanded_idx_mapping", "pos"}
#: The process that an engine's processes end with, by its id: told to those that are started by it.
_USER = "VARBAND_ENGINE_USER"
_STATE_PARTS = ("remove_request", "req_id_to_index", "prompt_len", "prefill_len", "max_seq_len")


class SamplingWorker:
    """Mixed into vllm.v1.worker.*: `model_runner` is its own."""

    model_runner: Any

    def abilities(self) -> dict[str, bool]:
        """keep: the model runner V2 on a GPU, whose sampler knows slot and position. merge: all linear layers and
        experts unquantised and whole on this device."""
        return {"keep": _keeps(self.model_runner), "merge": mergeable(self.model_runner.get_model())}

    def keep_logprobs(self, on: bool) -> None:
        runner = self.model_runner
        if on:
            self._kept = _install(runner)
        else:
            del runner.sampler.sample, runner.req_states.remove_request

    def take_logprobs(self, lengths: dict[str, int]) -> bytes:
        """float32, end to end."""
        states = self.model_runner.req_states
        running = {r: _slot(states, i) for r in lengths if (i := states.req_id_to_index.get(r)) is not None}
        return self._kept.take(lengths, running).cpu().numpy().tobytes()

    def forget_logprobs(self) -> None:
        self._kept.forget()

    def hold_base(self, folder: str) -> None:
        """Keep the weights that adapters are merged into. folder: of the base model."""
        self._base = base_weights(self.model_runner.get_model(), Path(folder))

    def serve_adapter(self, folder: str | None) -> None:
        """Every later forward pass is of base + adapter; of the base alone, bit for bit, if null."""
        serve(self.model_runner.get_model(), self._base, folder)


@contextmanager
def ending_with_this_process() -> Iterator[None]:
    """vLLM's processes that are started meanwhile end when this one ends, however it does: its core waits for it for
    ever, and holds the device."""
    os.environ[_USER] = str(os.getpid())
    try:
        yield
    finally:
        del os.environ[_USER]


def _end_after(user: int) -> None:
    with suppress(psutil.NoSuchProcess):
        psutil.Process(user).wait()
    # the core, where that is a process between
    if (starter := parent_process()) and starter.pid not in (None, user):
        with suppress(psutil.NoSuchProcess):
            psutil.Process(starter.pid).kill()
    os._exit(1)


def _keeps(runner: Any) -> bool:
    sampler, states = getattr(runner, "sampler", None), getattr(runner, "req_states", None)
    sample = getattr(sampler, "sample", None)
    if sample is None or states is None or getattr(runner, "rejection_sampler", None) is not None:
        return False
    known = set(inspect.signature(sample).parameters) >= _SAMPLER_ARGUMENTS
    return known and all(hasattr(states, part) for part in _STATE_PARTS) and states.device.type == "cuda"


def _slot(states: Any, index: int) -> Slot:
    prompt, prefill = int(states.prompt_len.np[index]), int(states.prefill_len.np[index])
    return Slot(index, prompt, prefill, int(states.max_seq_len[index]))


def _install(runner: Any) -> KeptLogprobs:
    """Log-probs are written as tokens are sampled, and kept when a slot is freed."""
    from tasks.engines.kernels import token_logprobs

    sampler, states = runner.sampler, runner.req_states
    shape = (states.max_num_reqs + 1, states.max_model_len)
    kept = KeptLogprobs(torch.zeros(shape, dtype=torch.float32, device=states.device))
    sample, remove = sampler.sample, states.remove_request
    signature = inspect.signature(sample)

    def sample_and_keep(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        given = signature.bind(*args, **kwargs).arguments
        sampled, processed = sample(*args, **kwargs)
        logprobs_B = token_logprobs(processed, sampled)
        kept.write(given["expanded_idx_mapping"], given["pos"], logprobs_B)
        return sampled, processed

    def remove_and_keep(request: str) -> int | None:
        if (index := states.req_id_to_index.get(request)) is not None:
            kept.release(request, _slot(states, index))
        return remove(request)

    sampler.sample, states.remove_request = sample_and_keep, remove_and_keep
    return kept


# vLLM imports this module in the model's process before it loads any weights: an engine that is still starting ends too
if (_user := int(os.environ.get(_USER, 0))) not in (0, os.getpid()):
    threading.Thread(target=_end_after, args=(_user,), daemon=True).start()


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
