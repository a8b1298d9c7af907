"""Sampling by transformers. This engine is slow and simple, runs on any hardware, and is the reference for vLLM."""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from tasks.domain.policies import ServedAdapter
from tasks.engines.adapter_files import served_name
from tasks.engines.hardware import Hardware, quiet_libraries, settle_threads
from tasks.engines.model_files import loaded, tokenizer_of
from tasks.engines.protocols import Completion, Request
from tasks.engines.sampling.prompts import EndTokens, PromptEncoder, check_lengths


class TransformersGenerator(PromptEncoder):
    name = "transformers"
    version = metadata.version("transformers")
    serving = "adapters by peft"

    def __init__(self, model: Path, hardware: Hardware) -> None:
        quiet_libraries()
        settle_threads()
        self._device = "cuda" if torch.cuda.is_available() and hardware.device != "cpu" else "cpu"
        dtype = torch.float32 if self._device == "cpu" else getattr(torch, hardware.dtype)
        self._tokenizer = tokenizer_of(model)
        base: Any = loaded(AutoModelForCausalLM, model, dtype)
        self._base = base.to(self._device).eval()
        self._ends = EndTokens(self._tokenizer, model)
        self._batch, self._max_model_len = hardware.max_num_seqs, hardware.max_model_len
        self._served: tuple[str, Any] | None = None

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        model = self._policy(adapter)
        waiting, queue = list[Request](), requests if isinstance(requests, deque) else deque(requests)
        while queue or waiting:
            waiting += [queue.popleft() for _ in range(len(queue))]
            check_lengths(waiting, self._max_model_len)
            waiting.sort(key=lambda r: (len(r.prompt_ids), r.key))
            batch, waiting = waiting[: self._batch], waiting[self._batch :]
            yield from self._sample(model, batch)

    def certainties(
        self, sampled: Sequence[tuple[Sequence[int], Sequence[int]]], adapter: ServedAdapter | None
    ) -> list[float]:
        """Return the self-certainty of each (prompt, completion): the mean over its tokens of the divergence of the
        uniform distribution from the model's, -1/V Σ log(V p), in nats. No batches: padding would change last bits."""
        model, found = self._policy(adapter), []
        for prompt, completion in sampled:
            ids_1T = torch.tensor([[*prompt, *completion]], device=self._device)
            with torch.no_grad():
                logits_TV = model(input_ids=ids_1T).logits[0, len(prompt) - 1 : -1].float()
            mean_T = torch.log_softmax(logits_TV, -1).mean(-1)
            found.append(float(-(mean_T + math.log(logits_TV.shape[-1])).mean()))
        return found

    def _policy(self, adapter: ServedAdapter | None) -> Any:
        name = served_name(adapter) if adapter else ""
        if self._served is not None and self._served[0] != name:
            self._base = self._served[1].unload()
            self._served = None
        if adapter is None:
            return self._base
        if self._served is None:
            model = PeftModel.from_pretrained(self._base, str(adapter.folder)).eval()
            self._served = (name, model)
        return self._served[1]

    def _sample(self, model: Any, requests: Sequence[Request]) -> Iterator[Completion]:
        """Sample one batch, padded on the left, token by token. Each request has its own random generator."""
        pad = self._tokenizer.pad_token_id or 0
        width = max(len(r.prompt_ids) for r in requests)
        ids_BL = torch.full((len(requests), width), pad)
        seen_BL = torch.zeros_like(ids_BL)
        for row, request in enumerate(requests):
            ids_BL[row, width - len(request.prompt_ids) :] = torch.tensor(request.prompt_ids)
            seen_BL[row, width - len(request.prompt_ids) :] = 1
        ids_BL, seen_BL = ids_BL.to(self._device), seen_BL.to(self._device)
        draws = [torch.Generator().manual_seed(r.seed) for r in requests]
        tokens: list[list[int]] = [[] for _ in requests]
        logprobs: list[list[float]] = [[] for _ in requests]
        finish: list[str | None] = [None] * len(requests)
        cache = None
        while None in finish:
            positions = (seen_BL.cumsum(-1) - 1).clamp(min=0)[:, -ids_BL.shape[1] :]
            with torch.no_grad():
                out = model(
                    input_ids=ids_BL,
                    attention_mask=seen_BL,
                    position_ids=positions,
                    past_key_values=cache,
                    use_cache=True,
                )
            cache = out.past_key_values
            logits_BV = out.logits[:, -1].float().cpu()
            chosen = [pad] * len(requests)
            for row, request in enumerate(requests):
                if finish[row] is not None:
                    continue
                chosen[row], logprob = _draw(logits_BV[row], request, draws[row])
                tokens[row].append(chosen[row])
                logprobs[row].append(logprob)
                finish[row] = self._finish(tokens[row], request)
            ids_BL = torch.tensor(chosen, device=self._device)[:, None]
            seen_BL = torch.cat([seen_BL, torch.ones_like(ids_BL)], dim=1)
        for request, ids, lps, end in zip(requests, tokens, logprobs, finish, strict=True):
            text = self._ends.text_of(ids, request.decoding.stop)
            yield Completion(request.key, text, ids, np.asarray(lps, np.float32), "stop" if end == "stop" else "length")

    def _finish(self, ids: list[int], request: Request) -> str | None:
        if ids[-1] in self._ends.ids:
            return "stop"
        # a token may be a single byte
        longest = max((len(stop.encode()) for stop in request.decoding.stop), default=0)
        tail = self._tokenizer.decode(ids[-max(16, longest + 1) :], skip_special_tokens=False)
        if any(stop in tail for stop in request.decoding.stop):
            return "stop"
        return "length" if len(ids) >= request.decoding.max_tokens else None

    def close(self) -> None:
        self._served = None
        del self._base


def _draw(logits_V: Any, request: Request, generator: Any) -> tuple[int, float]:
    """Return one token and its log-prob under the sampled distribution."""
    decoding = request.decoding
    if decoding.temperature == 0:
        token = int(logits_V.argmax())
        return token, float(torch.log_softmax(logits_V, -1)[token])
    logprobs_V = torch.log_softmax(logits_V / decoding.temperature, -1)
    if decoding.top_p < 1:
        order = logprobs_V.argsort(descending=True)
        mass = logprobs_V[order].exp().cumsum(0)
        logprobs_V[order[1:][mass[:-1] >= decoding.top_p]] = -torch.inf
        logprobs_V = torch.log_softmax(logprobs_V, -1)
    token = int(torch.multinomial(logprobs_V.exp(), 1, generator=generator))
    return token, float(logprobs_V[token])
