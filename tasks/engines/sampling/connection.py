"""One connection to an OpenAI-compatible server: retries what may pass, parks on what money or patience must solve.

| answer | what it means here |
|---|---|
| refused or dropped connection, no whole answer in time, 408, 409, 425, 5xx | tried again with growing pauses |
| 200 with garbage: cut short, a page, no choice, other lengths than asked for | the same |
| 429 | the same, honouring Retry-After |
| any of these for `patience`, while no other request was answered | Parked: the server stays away |
| 402, 429 with a code of QUOTA_CODES or that asks for money | Parked: the provider's own wall |
| 401, 403 | the key is wrong: UserError |
| any other 4xx | the request is wrong: UserError with the server's words |
"""

from __future__ import annotations

import http.client
import json
import math
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import SplitResult

from storage.errors import Parked, UserError
from tasks.engines.sampling.answers import Garbled, parsed
from tasks.engines.sampling.timed import TimedResponse

T = TypeVar("T")
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
#: Codes and types of errors that only money mends. A rate limit's words speak of quota and billing too.
QUOTA_CODES = frozenset(
    {
        "insufficient_quota",
        "insufficient_balance",
        "insufficient_credits",
        "billing_hard_limit_reached",
        "billing_not_active",
        "payment_required",
    }
)
#: Words of a 429 that no pause mends: "Add credits to continue".
MONEY = re.compile(r"\b(add|buy|purchase|top up|out of|no|insufficient)\b[^.]{0,20}\b(credits?|funds?|balance)\b", re.I)
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 20.0
CONNECT_SECONDS = 30.0
#: More than an answer is, without its tokens and for each of those that it may have. Many arrive at once.
MOST_BYTES, TOKEN_BYTES = 1 << 22, 1 << 10
#: A key of fewer characters is no secret, and may be a part of any word.
SECRET_CHARACTERS = 8


@dataclass(slots=True)
class Server:
    """What all connections to it share. patience, reply: seconds that it may answer nobody, and that one answer may
    take. answered: when it last answered any of them."""

    url: str
    parts: SplitResult
    key: str | None
    patience: float
    reply: float
    answered: float = -math.inf


class Connection:
    """One kept-alive connection, for one thread."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._headers = {"Content-Type": "application/json"}
        if server.key:
            self._headers["Authorization"] = f"Bearer {server.key}"
        self._http: http.client.HTTPConnection | None = None

    def post(self, path: str, body: Mapping[str, object], stop: threading.Event, read: Callable[[bytes], T]) -> T:
        return self.ask("POST", path, body, stop, read)

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None,
        stop: threading.Event,
        read: Callable[[bytes], T],
        *,
        based: bool = True,
    ) -> T:
        """What `read` finds in the answer; Garbled is tried again. stop: set when nobody waits for another try.
        based: the path is below the server's base address."""
        pause, failing, at = FIRST_PAUSE, math.inf, self._server
        payload, most = None if body is None else json.dumps(body).encode(), most_bytes(body or {})
        path = at.parts.path.rstrip("/") + path if based else path
        while True:
            wait, status = 0.0, 0
            try:
                status, headers, text = self._once(method, path, payload, most)
                if status < 300:
                    found = read(text)
                    at.answered = time.monotonic()
                    return found
                words, codes = _said(text)
                last = f"{status} {words}"
                self._refuse(status, words, codes)
                wait = _retry_after(headers.get("Retry-After"))
            except UserError as error:
                raise type(error)(self._plain(str(error))) from None
            except Garbled as error:
                last = f"{status} with {error}"
            except TimeoutError:
                last = f"no whole answer within {at.reply:g} s (VARBAND_OPENAI_TIMEOUT)"
                self.close()
            except (OSError, http.client.HTTPException) as error:
                last = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                self.close()
            moment = time.monotonic()
            failing = min(failing, moment)
            if stop.is_set() or moment - max(failing, at.answered) > at.patience:
                silent = f"answered nothing but {status}" if status >= 300 else "did not answer"
                raise Parked(
                    f"{at.url} {silent} for {at.patience:g} s ({self._plain(last)}); finished rollouts are kept:"
                    " see that it is up and give the same command again"
                )
            pause = min(pause * 2, LONGEST_PAUSE)
            stop.wait(max(wait, pause * random.uniform(0.5, 1.0)))

    def _once(self, method: str, path: str, payload: bytes | None, most: int) -> tuple[int, Any, bytes]:
        """most: bytes of an answer. Errors: TimeoutError if it is not whole in time, however it trickles."""
        server, until = self._server, time.monotonic() + self._server.reply
        if self._http is None:
            kind = http.client.HTTPSConnection if server.parts.scheme == "https" else http.client.HTTPConnection
            within = min(CONNECT_SECONDS, server.reply)
            self._http = kind(server.parts.hostname or "", server.parts.port, timeout=within)
        if self._http.sock is None:
            self._http.connect()
        assert self._http.sock is not None
        self._http.sock.settimeout(server.reply)
        self._http.response_class = partial(TimedResponse, until=until)  # type: ignore[assignment]
        self._http.request(method, path, payload, self._headers)
        response = self._http.getresponse()
        content = bytearray()
        while piece := response.read1(1 << 16):
            content += piece
            if len(content) > most:
                raise http.client.HTTPException(f"an answer of more than {most} bytes")
        if response.length:
            raise http.client.IncompleteRead(bytes(content), response.length)
        response.read()  # the connection is free for the next request
        return response.status, response.headers, bytes(content)

    def _refuse(self, status: int, words: str, codes: frozenset[str]) -> None:
        """Raise for an answer that another try would not change."""
        if status == 402 or (status == 429 and (codes & QUOTA_CODES or MONEY.search(words))):
            raise Parked(
                f"{self._server.url} refuses to go on ({words}); finished rollouts are kept: top up there and give"
                " the same command again"
            )
        if status in (401, 403):
            raise UserError(f"{self._server.url}: {words}; check VARBAND_OPENAI_API_KEY")
        if 300 <= status < 400:
            raise UserError(f"{self._server.url}: it sends elsewhere ({status}), where nobody's key goes; correct it")
        if status not in PASSING:
            raise UserError(f"{self._server.url}: {words or status}")

    def _plain(self, words: str) -> str:
        """A server's words for terminals and records: its key, which some repeat, and what no page prints left out."""
        key = self._server.key or ""
        told = words.replace(key, "…") if len(key) >= SECRET_CHARACTERS else words
        return "".join(c if c.isprintable() else " " for c in told)

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None


def most_bytes(body: Mapping[str, object]) -> int:
    """Of the answer to a request.

    >>> most_bytes({"max_tokens": 12288}) == 16 * 2**20
    True
    """
    tokens = body.get("max_tokens")
    return MOST_BYTES + TOKEN_BYTES * (tokens if isinstance(tokens, int) else 0)


def _said(text: bytes) -> tuple[str, frozenset[str]]:
    """What an error answer says, in one line, and its codes."""
    try:
        found = parsed(text)
    except Garbled:
        return " ".join(text.decode(errors="replace").split())[:300], frozenset()
    error = found.get("error", found)
    if isinstance(error, list) and error:
        error = error[0]
    if not isinstance(error, dict):
        return " ".join(str(error).split())[:300], frozenset()
    codes = [str(code) for name in ("code", "type") if (code := error.get(name))]
    words = f"{error.get('message', error)}" + (f" [{codes[0]}]" if codes else "")
    return " ".join(words.split())[:300], frozenset(codes)


def _retry_after(header: str | None) -> float:
    try:
        seconds = float(header or 0)
    except ValueError:
        return 0.0
    return min(seconds, 600.0) if seconds > 0 else 0.0
