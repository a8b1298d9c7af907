"""Sampling by a Tinker service. An adapter is a path to weights that a training on the same service saved."""

import json
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from storage.errors import Parked, UserError
from tasks.domain.policies import ServedAdapter
from tasks.engines.hardware import Hardware, quiet_libraries
from tasks.engines.model_files import names_of, tokenizer_of
from tasks.engines.protocols import Completion, Request
from tasks.engines.sampling.prompts import EndTokens, PromptEncoder, check_lengths
from tasks.engines.tinker_service import REMOTE, Service, answered, patience, sdk


class TinkerGenerator(PromptEncoder):
    name = "tinker"

    def __init__(self, model: Path, hardware: Hardware) -> None:
        quiet_libraries()
        self._service = Service(names_of(model), hardware.served_model)
        self.version = metadata.version("tinker")
        self.serving = f"by a Tinker service as {self._service.model}"
        self._tokenizer = tokenizer_of(model)
        self._ends = EndTokens(self._tokenizer, model)
        self._at_once, self._max_model_len = hardware.max_num_seqs, hardware.max_model_len
        self._samplers: dict[str | None, Any] = {}

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        """Yield completions as they finish. Raise Parked or UserError after all finished completions."""
        check_lengths([*requests], self._max_model_len)
        sampler, todo = self._sampler(adapter), requests if isinstance(requests, deque) else deque(requests)
        at_work, failure = dict[Future[Any], Request](), None
        while at_work or (todo and failure is None):
            while todo and failure is None and len(at_work) < self._at_once:
                request = todo.popleft()
                at_work[self._sent(sampler, request)] = request
            done = wait(at_work, timeout=patience(), return_when=FIRST_COMPLETED).done
            if not done:
                raise Parked(f"engine tinker: no sample within {patience():g} s (VARBAND_TINKER_TIMEOUT)")
            for one in done:
                try:
                    completion = self._completion(at_work.pop(one), answered(one.result))
                except UserError as error:
                    failure = failure or error
                else:
                    yield completion
        if failure is not None:
            raise failure

    def _sampler(self, adapter: ServedAdapter | None) -> Any:
        path, gone = None, ""
        if adapter is not None:
            if not (adapter.folder / REMOTE).is_file():
                raise UserError(
                    f"adapter {adapter.name} was not trained on a Tinker service: sample it with another engine"
                )
            remote = json.loads((adapter.folder / REMOTE).read_text())
            path, until = remote["sampler"], remote["sampler_expires"]
            gone = f"{path} is no longer there (adapter {adapter.name}" + (f", until {until})" if until else ")")
        if path not in self._samplers:
            named = {"base_model": self._service.model} if path is None else {"model_path": path}
            self._samplers = {path: self._service.sampler(gone, **named)}
        return self._samplers[path]

    def _sent(self, sampler: Any, request: Request) -> Future[Any]:
        types, d = sdk().types, request.decoding
        how = {"max_tokens": d.max_tokens, "temperature": d.temperature, "top_p": d.top_p}
        params = types.SamplingParams(**how, seed=request.seed, stop=[*d.stop] or None)
        return sampler.sample(types.ModelInput.from_ints([*request.prompt_ids]), 1, params).future()

    def _completion(self, request: Request, answer: Any) -> Completion:
        (one,) = answer.sequences
        ids, most = [*map(int, one.tokens)], request.decoding.max_tokens
        if one.logprobs is None or len(one.logprobs) != len(ids) or not 0 < len(ids) <= most:
            raise UserError(
                f"engine tinker: the answer has {len(ids)} tokens (allowed: 1 to {most}), or lacks their log-probs"
            )
        text = self._ends.text_of(ids, request.decoding.stop)
        return Completion(request.key, text, ids, np.asarray(one.logprobs, np.float32), one.stop_reason)

    def close(self) -> None:
        self._samplers.clear()
