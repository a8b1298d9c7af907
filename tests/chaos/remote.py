"""The remote engine against a server that can be killed, or can be made to answer with garbage."""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from tasks.engines.protocols import Decoding, Request
from tasks.engines.sampling.endpoint import Endpoint
from tasks.engines.sampling.openai import OpenAIGenerator
from tasks.engines.sampling.prompts import EndTokens
from tests.chaos.engines import SeededGenerator, answered

#: What comes instead of an answer, all with status 200.
GARBAGE = (b'{"choices": [{"text": "<ans', b"<html><body>Please log in</body></html>", b'{"choices": []}', b"", b"null")


class _Tokenizer:
    """Only what the engine asks of one: no text ends in an end-of-text token here."""

    eos_token_id = -1


def remote_generator(url: str) -> OpenAIGenerator:
    """The engine without a model folder: prompts are bytes, as the other engine of the study has them."""
    made = OpenAIGenerator.__new__(OpenAIGenerator)
    made._endpoint, made._model, made.version = Endpoint(url, None), "chaos", "1"
    made._tokenizer, made._connections = _Tokenizer(), 4
    made._ends = EndTokens(made._tokenizer, Path())
    made._max_model_len, made._loaded, made._scaled, made._vocabulary = 512, set(), True, 1 << 20
    made.encode = SeededGenerator().encode  # type: ignore[method-assign]
    made._endpoint.load_adapter = lambda *_: None  # type: ignore[method-assign]
    return made


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    garbage: Synchronized[int]

    def log_message(self, format: str, *args: object) -> None: ...

    def do_POST(self) -> None:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(0.01)
        data = self._garbage() or self._answer(body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _garbage(self) -> bytes | None:
        with self.garbage.get_lock():
            left = self.garbage.value
            self.garbage.value = max(0, left - 1)
        return (GARBAGE[left % len(GARBAGE)] or b" ") if left else None

    def _answer(self, body: dict[str, Any]) -> bytes:
        made = answered(Request(0, (), body["seed"], Decoding(max_tokens=body["max_tokens"])))
        choice = {
            "text": made.text,
            "token_ids": made.token_ids,
            "finish_reason": "stop",
            "logprobs": {"token_logprobs": [float(x) for x in made.logprobs_T]},
        }
        return json.dumps({"choices": [choice]}).encode()


def serve(port: int, garbage: Synchronized[int]) -> None:
    """On 127.0.0.1. garbage: so many answers are garbage from now on."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # whom a killed process leaves in the middle of a request
    _Handler.garbage = garbage
    ThreadingHTTPServer(("127.0.0.1", port), _Handler).serve_forever()
