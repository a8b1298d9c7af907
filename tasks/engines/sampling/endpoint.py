"""An OpenAI-compatible server: its address, its key, and how requests reach it. What may pass is tried again; what
money or patience must solve parks the run.

| answer | what it means here |
|---|---|
| refused or dropped connection, no whole answer in time, 408, 409, 425, 5xx | tried again with growing pauses |
| 200 with garbage: cut short, a page, no choice, other lengths than asked for | the same |
| 429 | the same, honouring Retry-After |
| any of these for `patience`, while no other request was answered | Parked: the server stays away |
| 402, 429 with a code of QUOTA_CODES or that asks for money | Parked: the provider's own wall |
| 401, 403 | the key is wrong: UserError |
| any other 4xx | the request is wrong: UserError with the server's words |

The key is the operator's, like the addresses that it may go to: what a study's settings name is not enough.
"""

from __future__ import annotations

import math
import os
import random
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

import httpx

from storage.errors import Parked, UserError
from storage.roots import seconds_set
from tasks.engines.sampling.answers import Garbled, model_of, parsed

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
#: A key of fewer characters is no secret, and may be a part of any word.
SECRET_CHARACTERS = 8
LONGEST_VERSION = 60

T = TypeVar("T")


def patience_seconds() -> float:
    """How long a server may answer nobody before the run parks."""
    return seconds_set("VARBAND_OPENAI_PATIENCE", 300.0)


def reply_seconds() -> float:
    """How long one answer may take: a rollout of many thousand tokens on a busy server."""
    return seconds_set("VARBAND_OPENAI_TIMEOUT", 1800.0)


def asked_address(asked: str = "") -> str:
    """What a study asks for; without it, the operator's own."""
    return asked or os.environ.get("VARBAND_OPENAI_BASE_URL", "")


def endpoint_for(asked: str = "") -> Endpoint:
    """The server at the address that a study asks for; without one, the operator's own.

    Errors: UserError if the operator has a key and has not allowed this address: it would be sent there.
    """
    own, key = os.environ.get("VARBAND_OPENAI_BASE_URL", ""), os.environ.get("VARBAND_OPENAI_API_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UserError("engine openai: VARBAND_OPENAI_API_KEY holds what no HTTP header can carry")
    endpoint = Endpoint(asked_address(asked), key or None)
    allowed = {_origin(url.strip()) for url in (own, *os.environ.get("VARBAND_OPENAI_ALLOWED", "").split(","))}
    if key and _origin(endpoint.url) not in allowed:
        raise UserError(
            f"hardware.endpoint={endpoint.url}: the key of VARBAND_OPENAI_API_KEY would be sent there, and whoever runs"
            " this machine has not allowed it; they can add it to VARBAND_OPENAI_ALLOWED (addresses, comma-separated)"
        )
    return endpoint


def _origin(url: str) -> tuple[str, str, int]:
    parts = _parts(url) if url else SplitResult("", "", "", "", "")
    return parts.scheme, parts.hostname or "", parts.port or {"https": 443}.get(parts.scheme, 80)


def _parts(url: str) -> SplitResult:
    """Errors: UserError for what is no address, without repeating what may be secret."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        parts, known = urlsplit(""), False
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError("engine openai: put the key into VARBAND_OPENAI_API_KEY, not into the address")
    if not known:
        raise UserError(
            f"engine openai: '{url}' is no address of a server; set VARBAND_OPENAI_BASE_URL, e.g. http://host:8000/v1"
        )
    return parts


class Endpoint:
    """`url` is the base with its version, e.g. http://10.0.0.5:8000/v1. The key is never shown or stored.

    Threads share it, and any answer to one of them shows that the server lives. Each has a kept-alive connection of its
    own: in one pool for all, httpcore looks through every connection at every request, 10 times slower at 256 threads.
    """

    def __init__(self, url: str, key: str | None) -> None:
        parts = _parts(url)
        self.url, self._key = url.rstrip("/"), key or ""
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._patience, self._reply, self._answered = patience_seconds(), reply_seconds(), -math.inf
        self._trust, self._thread = httpx.create_ssl_context(), threading.local()

    @property
    def _http(self) -> httpx.Client:
        if not hasattr(self._thread, "http"):
            self._thread.http = httpx.Client(
                headers={"Authorization": f"Bearer {self._key}"} if self._key else None,
                timeout=httpx.Timeout(self._reply, connect=min(CONNECT_SECONDS, self._reply)),
                verify=self._trust,
            )
        return self._thread.http

    def close(self) -> None:
        """Close this thread's connection."""
        self._http.close()
        del self._thread.http

    def model(self, names: Collection[str] | None = None, served: str = "") -> str:
        """Return the name under which the study's model is served. names, served, errors: as model_of."""
        return self.ask(f"{self.url}/models", partial(model_of, url=self.url, names=names, served=served))

    def version(self) -> str:
        """Return vLLM's version, "unknown" where the server does not tell it."""

        def read(text: bytes) -> str:
            try:
                found = str(parsed(text)["version"])[:LONGEST_VERSION]
                return found if found.isprintable() else "unknown"
            except (Garbled, KeyError):
                return "unknown"

        try:
            return self.ask(f"{self._origin}/version", read)
        except Parked:
            raise
        except UserError:
            return "unknown"

    def load_adapter(self, name: str, folder: Path) -> None:
        """Errors: UserError if the server cannot load it; one that is loaded already is fine."""
        body = {"lora_name": name, "lora_path": str(folder.resolve())}
        try:
            self.ask(f"{self.url}/load_lora_adapter", lambda text: None, body)
        except Parked:
            raise
        except UserError as error:
            if "already" not in str(error):
                raise UserError(
                    f"{error}; to evaluate adapters start the server with --enable-lora and"
                    " VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, and let it see the artifact root"
                ) from None

    def complete(self, body: Mapping[str, object], read: Callable[[bytes], T], stop: threading.Event) -> T:
        """Ask for one completion. read, stop: as `ask`."""
        return self.ask(f"{self.url}/completions", read, body, stop)

    def ask(
        self,
        url: str,
        read: Callable[[bytes], T],
        body: Mapping[str, object] | None = None,
        stop: threading.Event | None = None,
    ) -> T:
        """Return what `read` finds in the answer; where it raises Garbled, ask again. With a body it is a POST.

        stop: set when nobody waits for another try. Errors: as the table above says.
        """
        stop, pause, failing = stop or threading.Event(), FIRST_PAUSE, math.inf
        while True:
            wait, silent = 0.0, "did not answer"
            try:
                status, headers, text = self._once(url, body)
                if status < 300:
                    found = read(text)
                    self._answered = time.monotonic()
                    return found
                words, codes = _words_of(text)
                silent, last = f"answered nothing but {status}", f"{status} {words}"
                self._refuse(status, words, codes)
                wait = _retry_after(headers.get("Retry-After"))
            except UserError as error:
                raise type(error)(self._plain(str(error))) from None
            except Garbled as error:
                last = f"200 with {error}"
            except httpx.TimeoutException:
                last = f"no whole answer within {self._reply:g} s (VARBAND_OPENAI_TIMEOUT)"
            except httpx.TransportError as error:
                last = f"{type(error).__name__}: {error}"
            moment = time.monotonic()
            failing = min(failing, moment)
            if stop.is_set() or moment - max(failing, self._answered) > self._patience:
                raise Parked(
                    f"{self.url} {silent} for {self._patience:g} s ({self._plain(last)}); finished rollouts are kept:"
                    " see that it is up and give the same command again"
                )
            pause = min(pause * 2, LONGEST_PAUSE)
            stop.wait(max(wait, pause * random.uniform(0.5, 1.0)))

    def _once(self, url: str, body: Mapping[str, object] | None) -> tuple[int, httpx.Headers, bytes]:
        """Errors: TimeoutException if the answer is not whole in time: some servers send blanks while they compute."""
        until, content = time.monotonic() + self._reply, bytearray()
        with self._http.stream("GET" if body is None else "POST", url, json=body) as response:
            for piece in response.iter_bytes():
                content += piece
                if time.monotonic() > until:
                    raise httpx.ReadTimeout("")
        return response.status_code, response.headers, bytes(content)

    def _refuse(self, status: int, words: str, codes: frozenset[str]) -> None:
        """Raise for an answer that another try would not change."""
        if status == 402 or (status == 429 and (codes & QUOTA_CODES or MONEY.search(words))):
            raise Parked(
                f"{self.url} refuses to go on ({words}); finished rollouts are kept: top up there and give the same"
                " command again"
            )
        if status in (401, 403):
            raise UserError(f"{self.url}: {words}; check VARBAND_OPENAI_API_KEY")
        if 300 <= status < 400:
            raise UserError(f"{self.url}: it sends elsewhere ({status}), where nobody's key goes; correct it")
        if status not in PASSING:
            raise UserError(f"{self.url}: {words or status}")

    def _plain(self, words: str) -> str:
        """Return a server's words for terminals and records, without its key, which some repeat, and without what no
        page prints."""
        shown = words.replace(self._key, "…") if len(self._key) >= SECRET_CHARACTERS else words
        return "".join(c if c.isprintable() else " " for c in shown)


def _words_of(text: bytes) -> tuple[str, frozenset[str]]:
    """Return what an error answer says, in one line, and its codes."""
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
