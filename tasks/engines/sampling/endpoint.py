"""An OpenAI-compatible server: its address, key, requests and errors. Temporary faults are retried. Faults that need
money or time pause the run (`Parked`).

| answer | reaction |
|---|---|
| refused or dropped connection, no answer in time, 408, 409, 425, 429, 5xx | retried with growing pauses |
| 200 with an invalid body: truncated, a web page, no choice, wrong lengths | the same |
| any of these for `patience`, while no other request was answered | Parked: the server is down |
| 402, 429 with a code of QUOTA_CODES or a request for payment | Parked: the provider's budget limit |
| 401, 403 | the key is wrong: UserError |
| any other 4xx | the request is wrong: Refused, a UserError with the server's message |

The operator of this machine sets the key, and the addresses that may get the key. So a study's settings alone cannot
send the key to another address.
"""

import math
import os
import random
import re
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from storage.errors import Parked, UserError
from storage.roots import seconds_set

PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
#: Codes and types of errors that ask for payment. Messages do not tell, because those of rate limits mention quota too.
QUOTA_CODES = {"insufficient_quota", "insufficient_balance", "insufficient_credits", "payment_required"}
QUOTA_CODES |= {"billing_hard_limit_reached", "billing_not_active"}
#: Words in an answer 429 for which a retry does not help, such as "Add credits to continue".
MONEY = re.compile(r"\b(add|buy|purchase|top up|out of|no|insufficient)\b[^.]{0,20}\b(credits?|funds?|balance)\b", re.I)
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 20.0
CONNECT_SECONDS = 30.0
#: Shorter keys are not masked in messages. They are not secret, and could be part of any word.
SECRET_CHARACTERS = 8

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Refused(UserError):
    """The server rejects a request as wrong. A retry would not help."""


class Garbled(ValueError):
    """The server's answer is invalid: truncated, a proxy's page, or the answer to another request. A retry may help."""


def parsed(text: bytes, form: type[M]) -> M:
    """Parse JSON into `form`. Raise Garbled if the text is not JSON, or has another form."""
    try:
        return form.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "answer"
        raise Garbled(f"{place}: {first['msg']}, in '{' '.join(text[:80].decode(errors='replace').split())}'") from None


class _Model(BaseModel):
    id: str
    root: str | None = None
    parent: str | None = None


class _Models(BaseModel):
    data: list[_Model]


def configured_address(address: str = "") -> str:
    """Return the address in the study's settings, or else the operator's default."""
    return address or os.environ.get("VARBAND_OPENAI_BASE_URL", "")


def endpoint_for(address: str = "") -> "Endpoint":
    """Return the server at the address in the study's settings, or else at the operator's default. Raise UserError if
    the operator has a key and has not allowed this address, because the key would be sent there."""
    key = os.environ.get("VARBAND_OPENAI_API_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UserError("engine openai: VARBAND_OPENAI_API_KEY has characters that an HTTP header cannot carry")
    endpoint = Endpoint(configured_address(address), key or None)
    allowed = [os.environ.get("VARBAND_OPENAI_BASE_URL", ""), *os.environ.get("VARBAND_OPENAI_ALLOWED", "").split(",")]
    if key and _origin(endpoint.url) not in [_origin(url.strip()) for url in allowed if url.strip()]:
        raise UserError(
            f"hardware.endpoint={endpoint.url}: the key of VARBAND_OPENAI_API_KEY may not be sent there; the operator"
            " of this machine can add the address to VARBAND_OPENAI_ALLOWED (comma-separated)"
        )
    return endpoint


def _origin(url: str) -> httpx.URL:
    """Return scheme, host and port. Raise UserError for an invalid address; its message leaves out parts that may be
    secret."""
    try:
        found = httpx.URL(url)
    except httpx.InvalidURL:
        found = httpx.URL()
    if found.userinfo or found.query or found.fragment:
        raise UserError("engine openai: put the key into VARBAND_OPENAI_API_KEY, not into the address")
    if found.scheme not in ("http", "https") or not found.host:
        raise UserError(
            f"engine openai: '{url}' is not a server's address; set VARBAND_OPENAI_BASE_URL, e.g. http://host:8000/v1"
        )
    return found.copy_with(path="/")


class Endpoint:
    """A server. `url` includes the version, such as http://10.0.0.5:8000/v1. The key is never shown or stored.

    All threads share the endpoint, and an answer to any thread shows that the server is up. Each thread has its own
    connection, because httpcore checks all connections of a pool at every request (10 times slower with 256 threads).
    """

    def __init__(self, url: str, key: str | None) -> None:
        self._origin = _origin(url)
        self.url, self._key = url.rstrip("/"), key or ""
        # seconds without any answer after which the run pauses; one answer may be a rollout of many thousand tokens
        self._patience = seconds_set("VARBAND_OPENAI_PATIENCE", 300.0)
        self._reply, self._answered = seconds_set("VARBAND_OPENAI_TIMEOUT", 1800.0), -math.inf
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
        self._http.close()
        del self._thread.http

    def model(self, names: Collection[str] | None = None, served: str = "") -> str:
        """Return the server's name for the study's model. names, served, errors: see model_of."""
        return self.ask(f"{self.url}/models", lambda text: model_of(text, self.url, names, served))

    def version(self) -> str:
        """Return vLLM's version, or "unknown"."""
        with suppress(httpx.HTTPError, ValueError, LookupError, TypeError):
            found = str(self._http.get(self._origin.join("/version")).json()["version"])
            return found[:60] if found.isprintable() else "unknown"
        return "unknown"

    def load_adapter(self, name: str, folder: Path) -> None:
        """Load an adapter that is not loaded yet. Raise UserError if the server cannot load it."""
        body = {"lora_name": name, "lora_path": str(folder.resolve())}
        try:
            self.ask(f"{self.url}/load_lora_adapter", lambda text: None, body)
        except Parked:
            raise
        except UserError as error:
            if "already" not in str(error):
                raise UserError(
                    f"{error}. To evaluate adapters, start the server with --enable-lora and"
                    " VLLM_ALLOW_RUNTIME_LORA_UPDATING=1; it must be able to read the artifact root"
                ) from None

    def ask(
        self,
        url: str,
        read: Callable[[bytes], T],
        body: dict[str, Any] | None = None,
        stop: threading.Event | None = None,
    ) -> T:
        """Send a request (POST with a body, else GET), and return `read` of the answer. Retry if that raises Garbled.
        The table at the top of this module lists the errors. stop: ends retries when it is set."""
        stop, pause, failing = stop or threading.Event(), FIRST_PAUSE, math.inf
        while True:
            wait, silent = 0.0, "did not answer"
            try:
                answer = self._http.request("GET" if body is None else "POST", url, json=body)
                if answer.status_code < 300:
                    found = read(answer.content)
                    self._answered = time.monotonic()
                    return found
                words, codes = _words_of(answer)
                silent, last = f"answered nothing but {answer.status_code}", f"{answer.status_code} {words}"
                self._refuse(answer.status_code, words, codes)
                wait = _retry_after(answer.headers.get("Retry-After"))
            except UserError as error:
                raise type(error)(self._plain(str(error))) from None
            except Garbled as error:
                last = f"200 with {error}"
            except httpx.TimeoutException:
                last = f"no answer within {self._reply:g} s (VARBAND_OPENAI_TIMEOUT)"
            except (httpx.TransportError, httpx.DecodingError) as error:
                last = f"{type(error).__name__}: {error}"
            moment = time.monotonic()
            failing = min(failing, moment)
            if stop.is_set() or moment - max(failing, self._answered) > self._patience:
                raise Parked(
                    f"{self.url} {silent} for {self._patience:g} s ({self._plain(last)}); finished rollouts are kept:"
                    " start it and run the same command again"
                )
            pause = min(pause * 2, LONGEST_PAUSE)
            stop.wait(max(wait, pause * random.uniform(0.5, 1.0)))

    def _refuse(self, status: int, words: str, codes: set[str]) -> None:
        """Raise an error for an answer that a retry would not change."""
        if status == 402 or (status == 429 and (codes & QUOTA_CODES or MONEY.search(words))):
            raise Parked(
                f"{self.url} refuses further requests ({words}); finished rollouts are kept: pay there and run the same"
                " command again"
            )
        if status in (401, 403):
            raise UserError(f"{self.url}: {words}; check VARBAND_OPENAI_API_KEY")
        if status not in PASSING:
            raise Refused(f"{self.url}: {status} {words}")

    def _plain(self, words: str) -> str:
        """Return a server's message without unprintable characters, and without the key, which some servers repeat."""
        words = words.replace(self._key, "…") if len(self._key) >= SECRET_CHARACTERS else words
        return "".join(c if c.isprintable() else " " for c in words)


def _words_of(answer: httpx.Response) -> tuple[str, set[str]]:
    """Return the message of an error answer in one line, and its codes."""
    try:
        error = answer.json()["error"]
        codes = [str(code) for name in ("code", "type") if (code := error.get(name))]
        words = f"{error['message']}" + (f" [{codes[0]}]" if codes else "")
    except (ValueError, LookupError, TypeError, AttributeError):
        words, codes = answer.content.decode(errors="replace"), []
    return " ".join(words.split())[:300], {*codes}


def _retry_after(header: str | None) -> float:
    with suppress(ValueError):
        seconds = float(header or 0)
        return min(seconds, 600.0) if seconds > 0 else 0.0
    return 0.0


def model_of(text: bytes, url: str, names: Collection[str] | None, served: str = "") -> str:
    """Return the server's name for the base model, from its list of models. Adapters in the list name the base model as
    their parent, and aliases have its folder. Raise UserError for another model, for several models, and for an answer
    that is not a list of models. names: possible names of the study's model; None accepts any. served: the exact name,
    if set."""
    try:
        bases = {one.id: one.root or one.id for one in parsed(text, _Models).data if not one.parent}
    except Garbled as error:
        raise UserError(f"{url}: the server's answer is not a list of models ({error}); check the address") from None
    listed = ", ".join([*bases][:4]) or "no model"
    if served in bases:
        return served
    alike = {
        name for name, root in bases.items() if names and {*map(_model_name, names)} & {*map(_model_name, (name, root))}
    }
    found = [*bases] if names is None else [name for name in bases if name in alike]
    if found and not served and len({*bases.values()}) == 1:
        return found[0]
    raise UserError(
        f"{url}: the server has {listed}, but the study's model is {served or ' or '.join(names or ())}; serve only"
        " that model, or set hardware.served_model to the name that the server uses"
    )


def _model_name(text: str) -> str:
    """Return the last part of a folder or hub id, without a commit.

    >>> _model_name("Qwen/Qwen2.5-1.5B@0a1b"), _model_name("/models/qwen2.5-1.5b/")
    ('qwen2.5-1.5b', 'qwen2.5-1.5b')
    """
    return text.rstrip("/").rpartition("/")[2].partition("@")[0].lower()
