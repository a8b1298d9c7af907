"""HTTP answers that must be whole by a moment, however they trickle: headers, sizes of chunks and trailers too."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any


class TimedResponse(http.client.HTTPResponse):
    """until: of time.monotonic. Errors: TimeoutError from whatever reads after it."""

    def __init__(self, sock: socket.socket, until: float, **more: Any) -> None:
        super().__init__(sock, **more)
        self.fp.close()
        self.fp = io.BufferedReader(_Line(sock, until))


class _Line(io.RawIOBase):
    """A socket's bytes. The time-out of a socket itself begins anew with every byte."""

    def __init__(self, sock: socket.socket, until: float) -> None:
        self._socket, self._bytes, self._until = sock, sock.makefile("rb", buffering=0), until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._bytes.readinto(buffer)

    def close(self) -> None:
        self._bytes.close()
        super().close()
