"""One OpenAI-compatible server over HTTP: retries what may pass, parks on what money or patience must solve.

| answer | what it means here |
|---|---|
| refused, dropped or timed-out connection, 408, 409, 425, 5xx | tried again with growing pauses, for `patience` |
| 429 without a word of quota | the same, honouring Retry-After |
| 402, 429 that speaks of quota, billing or credit | Parked: the provider's own wall |
| 401, 403 | the key is wrong: UserError |
| any other 4xx | the request is wrong: UserError with the server's words |
"""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from storage.errors import Parked, UserError

PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
QUOTA_WORDS = ("quota", "billing", "credit", "payment", "balance", "spend")
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 20.0
REPLY_SECONDS = 1800.0  # a rollout of many thousand tokens on a busy server


def patience_seconds() -> float:
    """How long a server may stay away before the run parks."""
    return float(os.environ.get("VARBAND_OPENAI_PATIENCE", "300"))


class Endpoint:
    """`url` is the base with its version, e.g. http://10.0.0.5:8000/v1. The key is never shown or stored."""

    def __init__(self, url: str, key: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(
                f"engine openai: '{url}' is no address of a server; set VARBAND_OPENAI_BASE_URL, e.g. http://host:8000/v1"
            )
        if parts.username or parts.password:
            raise UserError("engine openai: put the key into VARBAND_OPENAI_API_KEY, not into the address")
        self.url = url.rstrip("/")
        self._parts, self._key = parts, key

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        held = Connection(self, self._parts, self._key)
        try:
            yield held
        finally:
            held.close()

    def get(self, path: str) -> dict[str, Any]:
        with self.connection() as connection:
            return connection.ask("GET", self._parts.path.rstrip("/") + path, None, threading.Event())

    def version(self) -> str:
        """vLLM's version where the server tells it."""
        with self.connection() as connection:
            try:
                return str(connection.ask("GET", "/version", None, threading.Event())["version"])
            except (UserError, KeyError):
                return "unknown"

    def load_adapter(self, name: str, folder: Path) -> None:
        """Errors: UserError if the server cannot load it; one that is loaded already is fine."""
        body = {"lora_name": name, "lora_path": str(folder.resolve())}
        with self.connection() as connection:
            try:
                connection.post("/load_lora_adapter", body, threading.Event())
            except Parked:
                raise
            except UserError as error:
                if "already" not in str(error):
                    raise UserError(
                        f"{error}; to evaluate adapters start the server with --enable-lora and"
                        " VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, and let it see the artifact root"
                    ) from None


class Connection:
    """One kept-alive connection, for one thread."""

    def __init__(self, endpoint: Endpoint, parts: Any, key: str | None) -> None:
        self._endpoint, self._parts = endpoint, parts
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._http: http.client.HTTPConnection | None = None

    def post(self, path: str, body: Mapping[str, object], stop: threading.Event) -> dict[str, Any]:
        return self.ask("POST", self._parts.path.rstrip("/") + path, body, stop)

    def ask(self, method: str, path: str, body: Mapping[str, object] | None, stop: threading.Event) -> dict[str, Any]:
        """The JSON answer. `stop`: set when nobody waits for another try."""
        give_up, pause, last = time.monotonic() + patience_seconds(), FIRST_PAUSE, "no answer"
        payload = None if body is None else json.dumps(body).encode()
        while True:
            wait = 0.0
            try:
                status, headers, text = self._once(method, path, payload)
            except (OSError, http.client.HTTPException) as error:
                last = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                self.close()
            else:
                if status < 300:
                    return json.loads(text) if text.strip().startswith(b"{") else {}
                last = f"{status} {_words(text)}"
                self._refuse(status, last)
                wait = _retry_after(headers.get("Retry-After"))
            pause = min(pause * 2, LONGEST_PAUSE)
            wait = max(wait, pause * random.uniform(0.5, 1.0))
            if stop.is_set() or time.monotonic() + wait > give_up:
                raise Parked(
                    f"{self._endpoint.url} did not answer for {patience_seconds():.0f} s ({last}); finished rollouts"
                    " are kept: see that it is up and give the same command again"
                )
            stop.wait(wait)

    def _once(self, method: str, path: str, payload: bytes | None) -> tuple[int, Any, bytes]:
        if self._http is None:
            secure = self._parts.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            self._http = kind(self._parts.hostname, self._parts.port, timeout=REPLY_SECONDS)
        self._http.request(method, path, payload, self._headers)
        response = self._http.getresponse()
        return response.status, response.headers, response.read()

    def _refuse(self, status: int, words: str) -> None:
        """Raise for an answer that another try would not change."""
        if status == 402 or (status == 429 and any(w in words.lower() for w in QUOTA_WORDS)):
            raise Parked(
                f"{self._endpoint.url} refuses to go on ({words}); finished rollouts are kept: top up there and give"
                " the same command again"
            )
        if status in (401, 403):
            raise UserError(f"{self._endpoint.url}: {words}; check VARBAND_OPENAI_API_KEY")
        if status not in PASSING:
            raise UserError(f"{self._endpoint.url}: {words}")

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None


def _words(text: bytes) -> str:
    """What an error answer says, in one line."""
    try:
        found = json.loads(text)
        error = found.get("error", found) if isinstance(found, dict) else found
        message = error.get("message", error) if isinstance(error, dict) else error
        code = error.get("code") or error.get("type") if isinstance(error, dict) else None
        text_found = f"{message} [{code}]" if code else str(message)
    except ValueError:
        text_found = text.decode(errors="replace")
    return " ".join(text_found.split())[:300]


def _retry_after(header: str | None) -> float:
    try:
        return min(float(header), 600.0) if header else 0.0
    except ValueError:
        return 0.0
