"""Sampling by a server that returns text without token ids and log-probs, such as a provider of closed models.

The server applies its own chat template and counts its tokens. Stop strings are not sent, because such servers leave
them out of the text, and some refuse them; the text is cut here. A parameter or protocol that the server refuses is
left out from then on, until it has answered once.
"""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from storage.errors import UserError
from tasks.domain.scaffolds import Scaffold
from tasks.engines.hardware import Hardware
from tasks.engines.protocols import Completion, Request
from tasks.engines.sampling.endpoint import Garbled, Refused, endpoint_for, parsed
from tasks.engines.sampling.openai import MOST_CONNECTIONS, Answer, OpenAIGenerator

CUT = ("length", "max_tokens")


@dataclass(frozen=True, slots=True)
class Form:
    """The form of requests to a server. chat: send plain prompts too as one user message. without: parameters that are
    left out."""

    chat: bool = False
    without: frozenset[str] = frozenset()

    def body(self, model: str, request: Request) -> tuple[str, dict[str, object]]:
        """Return the path and body of a request."""
        prompt, how = request.prompt, request.decoding
        if isinstance(prompt, str) and not self.chat:
            path, text = "completions", {"prompt": prompt}
        else:
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            path, text = "chat/completions", {"messages": messages}
        limit = "max_completion_tokens" if "max_tokens" in self.without else "max_tokens"
        sampling = {"temperature": how.temperature, "top_p": how.top_p, "seed": request.seed, limit: how.max_tokens}
        return path, {"model": model, **text, **{n: v for n, v in sampling.items() if n not in self.without}}

    def after(self, refusal: str, request: Request) -> Form | None:
        """Return another form that the server may accept; None if there is none. A temperature
        or top_p may be left out of the request only if it is 1, the protocol's default.

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
    """Samples from a model that only a server has. model: its name there."""

    name = "openai-text"

    def __init__(self, model: str, hardware: Hardware) -> None:
        self._endpoint, self._model = endpoint_for(hardware.endpoint), model
        self.serving, self.version = f"by its server as {model}: text without token ids and log-probs", "unknown"
        self._connections, self._max_model_len = min(hardware.max_num_seqs, MOST_CONNECTIONS), sys.maxsize
        self._loaded: set[str] = set()
        self._form, self._answered, self._changing = Form(), False, threading.Lock()

    def encode(self, scaffold: Scaffold, problem: str, begun: str = "") -> tuple[int, ...]:
        """Return no token ids: the server has the tokenizer. Errors: UserError for a given start of the completion."""
        if begun:
            raise UserError(f"{self._model} is only on a server and cannot continue a completion that is given")
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
        """Return the completion in the server's answer. Errors: Garbled; UserError if the server counts no tokens."""
        answer = parsed(text, Answer)
        choice, usage = answer.choices[0], answer.usage
        if choice.finish_reason == "error":
            raise Garbled("an answer that ended in an error")
        if usage is None:
            raise UserError(f"{self._endpoint.url}: its answers have no `usage`, so their tokens cannot be charged")
        self._answered, self.version = True, answer.model or self.version
        completion = (choice.message.content if choice.message else choice.text) or ""
        ends = [at + len(stop) for stop in request.decoding.stop if (at := completion.find(stop)) >= 0]
        finish = "length" if choice.finish_reason in CUT and not ends else "stop"
        counted = usage.prompt_tokens, usage.completion_tokens
        completion = completion[: min(ends, default=None)]
        return Completion(request.key, completion, [], np.zeros(0, np.float32), finish, counted)
