"""The address of an OpenAI-compatible server, its key, and what is asked of it besides rollouts.

The key is the operator's, like the addresses that it may go to: what a study's settings name is not enough.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from storage.errors import Parked, UserError
from storage.roots import seconds_set
from tasks.engines.sampling.answers import Garbled, model_of, parsed
from tasks.engines.sampling.connection import Connection, Server

LONGEST_VERSION = 60


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
    """`url` is the base with its version, e.g. http://10.0.0.5:8000/v1. The key is never shown or stored."""

    def __init__(self, url: str, key: str | None) -> None:
        self._server = Server(url.rstrip("/"), _parts(url), key, patience_seconds(), reply_seconds())
        self.url = self._server.url

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        held = Connection(self._server)
        try:
            yield held
        finally:
            held.close()

    def model(self, names: Collection[str] | None = None, served: str = "") -> str:
        """Return the name under which the study's model is served. names, served, errors: as model_of."""
        with self.connection() as connection:
            read = partial(model_of, url=self.url, names=names, served=served)
            return connection.ask("GET", "/models", None, threading.Event(), read)

    def version(self) -> str:
        """vLLM's version where the server tells it."""

        def told(text: bytes) -> str:
            try:
                said = str(parsed(text)["version"])[:LONGEST_VERSION]
                return said if said.isprintable() else "unknown"
            except (Garbled, KeyError):
                return "unknown"

        with self.connection() as connection:
            try:
                return connection.ask("GET", "/version", None, threading.Event(), told, based=False)
            except Parked:
                raise
            except UserError:
                return "unknown"

    def load_adapter(self, name: str, folder: Path) -> None:
        """Errors: UserError if the server cannot load it; one that is loaded already is fine."""
        body = {"lora_name": name, "lora_path": str(folder.resolve())}
        with self.connection() as connection:
            try:
                connection.post("/load_lora_adapter", body, threading.Event(), lambda text: None)
            except Parked:
                raise
            except UserError as error:
                if "already" not in str(error):
                    raise UserError(
                        f"{error}; to evaluate adapters start the server with --enable-lora and"
                        " VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, and let it see the artifact root"
                    ) from None
