"""The remote engine against a server that can be killed: `python -m tests.chaos.remote PORT` serves on 127.0.0.1."""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tasks.engines.protocols import Decoding, Request
from tasks.engines.sampling.endpoint import Endpoint
from tasks.engines.sampling.openai import OpenAIGenerator
from tests.chaos.driver import SeededGenerator, answered


class _Tokenizer:
    """Only what the engine asks of one: no text ends in an end-of-text token here."""

    eos_token_id = -1


def remote_generator(url: str) -> OpenAIGenerator:
    """The engine without a model folder: prompts are bytes, as the other engine of the driver has them."""
    made = OpenAIGenerator.__new__(OpenAIGenerator)
    made._endpoint, made._model, made.version = Endpoint(url, None), "chaos", "1"
    made._tokenizer, made._eos, made._connections = _Tokenizer(), -1, 4
    made._max_model_len, made._loaded = 512, set()
    made.encode = SeededGenerator().encode  # type: ignore[method-assign]
    return made


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None: ...

    def do_POST(self) -> None:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(0.01)
        made = answered(Request(0, (), body["seed"], Decoding(max_tokens=body["max_tokens"])))
        choice = {
            "text": made.text,
            "token_ids": made.token_ids,
            "finish_reason": "stop",
            "logprobs": {"token_logprobs": [float(x) for x in made.logprobs_T]},
        }
        data = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
