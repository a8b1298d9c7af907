"""Sampling by a server with the OpenAI completions protocol, such as `vllm serve` on another host.

Prompts are sent as token ids, and sampled ids and log-probs come back, so that such rollouts can be trained on. Every
request is an HTTP call of its own, and the server makes batches. Finished rollouts are yielded before an error is
raised. The owner of the server starts it. We assume
    vllm serve MODEL --logprobs-mode processed_logprobs --enable-lora --max-lora-rank 32
and, for evaluating adapters, VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and access of both sides to the artifact root.

`TextGenerator` samples from a server that returns text without token ids and log-probs, such as a provider of closed
models. The server applies its own chat template and counts its tokens. The text is cut at stop strings here and not by
the server, because such servers remove stop strings from the text, and some reject them. A parameter or protocol that
the server rejects is left out from then on, if this happens before its first answer.
"""

import queue
import re
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import numpy as np
from pydantic import BaseModel, Field

from storage.errors import UserError
from tasks.domain.policies import SERVED, ServedAdapter
from tasks.domain.scaffolds import Scaffold
from tasks.engines.adapter_files import served_name
from tasks.engines.hardware import Hardware, quiet_libraries
from tasks.engines.model_files import names_of, tokenizer_of
from tasks.engines.protocols import Completion, Finish, Request
from tasks.engines.sampling.endpoint import Garbled, Refused, endpoint_for, parsed
from tasks.engines.sampling.prompts import EndTokens, PromptEncoder, check_lengths, vocabulary_of

#: Settings that override the model's generation_config.json, which may truncate or change the sampled distribution.
NEUTRAL = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
#: What vLLM writes for a log-prob of minus infinity, which JSON cannot contain.
NO_LOGPROB = -9998.0
#: Most connections. More would gain nothing, and cost a thread each.
MOST_CONNECTIONS = 256
#: A log-prob. Rounding may make it slightly positive.
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
        """Yield completions as they finish. Then raise Parked if the provider rejects requests or does not answer."""
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
        """Serve requests on one connection until none is left, or another connection failed. Put errors into `done`."""
        try:
            while todo and not stop.is_set():
                try:
                    request = todo.popleft()
                except IndexError:  # another connection took the last request
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
        """Return the completion in an answer. Raise Garbled, or UserError if the server returns no token ids and
        log-probs. model: the requested model; a gateway may use another one."""
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
                f"{self._endpoint.url}: the server returns no token ids with log-probs, which training needs. Use vLLM"
                " 0.11 or newer (`return_token_ids`); for an arm that is not trained, you can also name the model"
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
        """Return the model's name on the server. An adapter is loaded on the server once, under its own name."""
        if adapter is None:
            return self._model
        if (name := served_name(adapter)) not in self._loaded:
            self._endpoint.load_adapter(name, adapter.folder)
            self._loaded.add(name)
        return name

    def close(self) -> None:
        self._loaded.clear()
        self._endpoint.close()


# ---- servers that return only text


CUT = ("length", "max_tokens")


@dataclass(frozen=True, slots=True)
class Form:
    """The form of requests. chat: send a plain prompt as a user message, too. without: parameters to leave out."""

    chat: bool = False
    without: frozenset[str] = frozenset()

    def body(self, model: str, request: Request) -> tuple[str, dict[str, object]]:
        prompt, how = request.prompt, request.decoding
        if isinstance(prompt, str) and not self.chat:
            path, text = "completions", {"prompt": prompt}
        else:
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            path, text = "chat/completions", {"messages": messages}
        limit = "max_completion_tokens" if "max_tokens" in self.without else "max_tokens"
        sampling = {"temperature": how.temperature, "top_p": how.top_p, "seed": request.seed, limit: how.max_tokens}
        return path, {"model": model, **text, **{n: v for n, v in sampling.items() if n not in self.without}}

    def after(self, refusal: str, request: Request) -> "Form | None":
        """Return the form of a request that the server may accept after this error; None if there is none. A
        temperature or top_p of 1 may be left out, because 1 is the protocol's default. Another value stays in the
        request.

        >>> from tasks.engines.protocols import Decoding
        >>> request = Request(0, (), 0, Decoding(max_tokens=5))
        >>> Form().after("max_tokens is unsupported; use max_completion_tokens", request).without
        frozenset({'max_tokens'})
        """
        defaults = [name for name in ("temperature", "top_p") if getattr(request.decoding, name) == 1]
        for name in ("max_tokens", "seed", *defaults):
            if name not in self.without and re.search(rf"\b{name}\b", refusal):
                return replace(self, without=self.without | {name})
        return None if self.chat else replace(self, chat=True)


class TextGenerator(OpenAIGenerator):
    """Samples from a model that only a server has. model: its name on the server."""

    name = "openai-text"

    def __init__(self, model: str, hardware: Hardware) -> None:
        self._endpoint, self._model = endpoint_for(hardware.endpoint), model
        self.serving, self.version = f"by its server as {model}: text without token ids and log-probs", "unknown"
        self._connections, self._max_model_len = min(hardware.max_num_seqs, MOST_CONNECTIONS), sys.maxsize
        self._loaded: set[str] = set()
        self._form, self._answered, self._changing = Form(), False, threading.Lock()

    def encode(self, scaffold: Scaffold, problem: str, begun: str = "") -> tuple[int, ...]:
        """Return no token ids, because the server has the tokenizer. Raise UserError for a given start (`begun`)."""
        if begun:
            raise UserError(f"model {self._model} is only on a server, which cannot continue a partial completion")
        return ()

    def _completed(self, model: str, request: Request, stop: threading.Event) -> Completion:
        while True:
            form = self._form
            path, body = form.body(model, request)
            try:
                return self._endpoint.ask(f"{self._endpoint.url}/{path}", partial(self._read, request), body, stop)
            except Refused as refusal:
                with self._changing:
                    if self._form == form:
                        other = None if self._answered else form.after(str(refusal), request)
                        if other is None:
                            raise
                        self._form = other

    def _read(self, request: Request, text: bytes) -> Completion:
        """Return the completion in the server's answer. Raise Garbled, or UserError if the server counts no tokens."""
        answer = parsed(text, Answer)
        choice, usage = answer.choices[0], answer.usage
        if choice.finish_reason == "error":
            raise Garbled("an answer that ended in an error")
        if usage is None:
            raise UserError(f"{self._endpoint.url}: its answers have no `usage`, so their tokens cannot be counted")
        self._answered, self.version = True, answer.model or self.version
        completion = (choice.message.content if choice.message else choice.text) or ""
        ends = [at + len(stop) for stop in request.decoding.stop if (at := completion.find(stop)) >= 0]
        finish = "length" if choice.finish_reason in CUT and not ends else "stop"
        counted = usage.prompt_tokens, usage.completion_tokens
        completion = completion[: min(ends, default=None)]
        return Completion(request.key, completion, [], np.zeros(0, np.float32), finish, counted)
