"""Sampling by a server with the OpenAI completions protocol, such as `vllm serve` on another host.

Prompts are sent as token ids; sampled ids and log-probs come back, so that such rollouts can be trained on. Every
request is its own HTTP call, which the server batches. Finished rollouts are yielded before an error is raised. The
owner of the server starts it; recipes assume
    vllm serve MODEL --logprobs-mode processed_logprobs --enable-lora --max-lora-rank 32
and, to evaluate adapters, VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and access of both sides to the artifact root.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import numpy as np
from pydantic import BaseModel, Field

from storage.errors import UserError
from tasks.domain.policies import SERVED, ServedAdapter
from tasks.engines.adapter_files import served_name
from tasks.engines.hardware import Hardware, quiet_libraries
from tasks.engines.model_files import names_of, tokenizer_of
from tasks.engines.protocols import Completion, Finish, Request
from tasks.engines.sampling.endpoint import Garbled, endpoint_for, parsed
from tasks.engines.sampling.prompts import EndTokens, PromptEncoder, check_lengths, vocabulary_of

#: Overrides of the model's generation_config.json, whose defaults may truncate or change the sampled distribution.
NEUTRAL = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
#: vLLM writes this for a log-prob of minus infinity, which JSON cannot hold.
NO_LOGPROB = -9998.0
#: The largest number of connections; more gain nothing and cost a thread each.
MOST_CONNECTIONS = 256
#: Rounding may make a log-prob slightly positive.
Logprob = Annotated[float, Field(le=1e-3)]


class _Logprobs(BaseModel):
    token_logprobs: list[Logprob | None] | None = None


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    text: str | None = None
    message: _Message | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None


class _Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int


class Answer(BaseModel):
    """An answer to a request for a completion or a chat."""

    model: str | None = None
    choices: Annotated[list[_Choice], Field(min_length=1, max_length=1)]
    usage: _Usage | None = None


class OpenAIGenerator(PromptEncoder):
    name = "openai"
    serving = "by its server"

    def __init__(self, model: Path, hardware: Hardware) -> None:
        quiet_libraries()
        self._endpoint = endpoint_for(hardware.endpoint)
        self._model = self._endpoint.model(names_of(model), hardware.served_model)
        self.serving = f"by its server as {self._model}"
        self.version = self._endpoint.version()
        self._tokenizer = tokenizer_of(model)
        self._ends = EndTokens(self._tokenizer, model)
        self._vocabulary = vocabulary_of(self._tokenizer, model)
        self._connections = min(hardware.max_num_seqs, MOST_CONNECTIONS)
        self._max_model_len = hardware.max_model_len
        self._loaded: set[str] = set()

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        """Yield completions as they finish. Errors: Parked if the provider refuses or stays down, after all finished
        ones."""
        check_lengths([*requests], self._max_model_len)
        model = self._served(adapter)
        todo = requests if isinstance(requests, deque) else deque(requests)
        done: queue.SimpleQueue[Completion | BaseException | None] = queue.SimpleQueue()
        stop, failure = threading.Event(), None
        at_work = min(self._connections, len(requests))
        try:
            for _ in range(at_work):
                threading.Thread(target=self._work, args=(model, todo, done, stop), daemon=True).start()
            while at_work:
                match done.get():
                    case Completion() as completion:
                        yield completion
                    case None:
                        at_work -= 1
                    case error:
                        failure = failure or error
                        stop.set()
        finally:
            stop.set()
        if failure is not None:
            raise failure

    def _work(
        self,
        model: str,
        todo: deque[Request],
        done: queue.SimpleQueue[Completion | BaseException | None],
        stop: threading.Event,
    ) -> None:
        """Serve requests on one connection until none is left or another connection failed. Report any error through
        `done`."""
        try:
            while todo and not stop.is_set():
                try:
                    request = todo.popleft()
                except IndexError:  # another connection took the last one
                    break
                done.put(self._completed(model, request, stop))
        except BaseException as error:
            done.put(error)
        finally:
            self._endpoint.close()
            done.put(None)

    def _completed(self, model: str, request: Request, stop: threading.Event) -> Completion:
        """Return the completion that the server samples for a request."""
        read = partial(self._completion, request, model)
        return self._endpoint.ask(f"{self._endpoint.url}/completions", read, self._body(model, request), stop)

    def _body(self, model: str, request: Request) -> dict[str, object]:
        d = request.decoding
        return {
            "model": model,
            "prompt": list(request.prompt_ids),
            "max_tokens": d.max_tokens,
            "temperature": d.temperature,
            "top_p": d.top_p,
            **NEUTRAL,
            "seed": request.seed,
            "stop": list(d.stop) or None,
            "logprobs": 0,
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "return_token_ids": True,
        }

    def _completion(self, request: Request, model: str, text: bytes) -> Completion:
        """Return the completion in an answer. model: the requested one; a gateway may use another. Errors: Garbled;
        UserError if the server does not return token ids and log-probs."""
        answer = parsed(text, Answer)
        choice = answer.choices[0]
        if choice.text is None or choice.finish_reason not in get_args(Finish):
            raise Garbled(f"no text, or an end by '{choice.finish_reason}'")
        if answer.model not in (None, model):
            raise Garbled(f"an answer of the model '{answer.model:.60}' to a request for '{model}'")
        if choice.prompt_token_ids not in (None, list(request.prompt_ids)):
            raise Garbled("an answer to another prompt")
        ids, scores = choice.token_ids, choice.logprobs and choice.logprobs.token_logprobs
        if ids is None or scores is None:
            raise UserError(
                f"{self._endpoint.url}: the server returns no token ids with log-probs, which training needs; use vLLM"
                " 0.11 or newer (`return_token_ids`), or for an arm that is not trained name the model"
                f" {SERVED}{self._model}"
            )
        if not all(0 <= i < self._vocabulary for i in ids):
            raise Garbled("tokens that the model does not have")
        if len(scores) != len(ids) or not 0 < len(ids) <= request.decoding.max_tokens:
            raise Garbled(f"{len(ids)} tokens with {len(scores)} log-probs, of at most {request.decoding.max_tokens}")
        logprobs_T = np.array([np.nan if s is None or s < NO_LOGPROB else s for s in scores], np.float32)
        text_of = self._ends.without(choice.text, ids)
        return Completion(request.key, text_of, ids, logprobs_T, choice.finish_reason)  # type: ignore[arg-type]

    def _served(self, adapter: ServedAdapter | None) -> str:
        """Return the model's name on the server; load an adapter there once, under its own name."""
        if adapter is None:
            return self._model
        if (name := served_name(adapter)) not in self._loaded:
            self._endpoint.load_adapter(name, adapter.folder)
            self._loaded.add(name)
        return name

    def close(self) -> None:
        self._loaded.clear()
        self._endpoint.close()
