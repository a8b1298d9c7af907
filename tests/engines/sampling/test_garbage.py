"""The remote engine, when what comes back is no answer, comes too slowly, or a thread of its own dies."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from storage.errors import Parked, UserError
from tasks.engines.hardware import Hardware
from tasks.engines.sampling.openai import OpenAIGenerator
from tasks.engines.sampling.sampler import _durable_batches
from tests.engines.sampling.test_openai import Answered, engine, fine, provider, requests

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


def cut_short(body: dict[str, Any]) -> Answered:
    return 200, json.dumps(fine(body)[1]).encode()[:-20]


def with_choice(**changes: object) -> Callable[[dict[str, Any]], Answered]:
    def answer(body: dict[str, Any]) -> Answered:
        choice = fine(body)[1]["choices"][0]
        return 200, {"choices": [{**choice, **changes}]}

    return answer


GARBAGE: dict[str, Callable[[dict[str, Any]], Answered]] = {
    "cut short": cut_short,
    "a page": lambda body: (200, b"<html><body>Please log in</body></html>"),
    "nothing": lambda body: (200, b""),
    "no text": lambda body: (200, b"\xff\xfe"),
    "a list": lambda body: (200, b"[1, 2]"),
    "null": lambda body: (200, b"null"),
    "no choice": lambda body: (200, {"choices": []}),
    "no choices": lambda body: (200, {"id": "x"}),
    "a choice that is none": lambda body: (200, {"choices": ["abc"]}),
    "fewer log-probs than tokens": with_choice(logprobs={"token_logprobs": [-0.5]}),
    "more tokens than asked for": with_choice(token_ids=[5] * 9, logprobs={"token_logprobs": [-0.5] * 9}),
    "a token that is no number": with_choice(token_ids=[5, "x", 7]),
    "a token that is negative": with_choice(token_ids=[5, -1, 7]),
    "a log-prob above zero": with_choice(logprobs={"token_logprobs": [-0.5, 3.0, -0.5]}),
    "a log-prob that is a text": with_choice(logprobs={"token_logprobs": [-0.5, "x", -0.5]}),
    "log-probs that are none": with_choice(logprobs=[1, 2, 3]),
    "a text that is none": with_choice(text=None),
    "broken off": with_choice(finish_reason="abort"),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_now_and_then_is_asked_for_again(tiny: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("tasks.engines.sampling.endpoint.FIRST_PAUSE", 0.01)
    with provider(lambda n, body: GARBAGE[kind](body) if n % 3 == 1 else fine(body)) as url:
        got = list(engine(tiny, url).generate(requests(12), None))
    assert sorted(c.key for c in got) == list(range(12))
    assert all(c.token_ids == [5, 6, (1000 + c.key) % 200 + 10] for c in got)


@pytest.mark.parametrize("kind", ["cut short", "a page", "no choice", "fewer log-probs than tokens"])
def test_garbage_that_does_not_end_parks_with_what_came(tiny: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("VARBAND_OPENAI_PATIENCE", "0.3")
    got = []
    with provider(lambda n, body: fine(body) if n <= 5 else GARBAGE[kind](body)) as url:
        batches = _durable_batches(engine(tiny, url).generate(requests(20), None), whole=False)
        with pytest.raises(Parked, match="did not answer"):
            got.extend(completion for batch in batches for completion in batch)
    assert len(got) == 5


def test_a_page_where_the_models_should_be_is_a_wrong_address(tiny: Path) -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>"
    with raw(lambda connection: connection.sendall(page)) as url, pytest.raises(UserError, match="no list of models"):
        engine(tiny, url)


@contextmanager
def raw(answer: Callable[[socket.socket], None], models: bool = False) -> Iterator[str]:
    """A server that sends bytes. models: true, a proper list of models is its first two answers."""
    listening = socket.create_server(("127.0.0.1", 0))
    listed = json.dumps({"data": [{"id": "m"}], "version": "1"}).encode()
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection:
            while asked := connection.recv(65536):
                if models and asked.startswith(b"GET"):
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(listed), listed))
                else:
                    answer(connection)

    def accept() -> None:
        while not over.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=_quietly, args=(serve, connection), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        over.set()
        listening.close()


def _quietly(serve: Callable[[socket.socket], None], connection: socket.socket) -> None:
    try:
        serve(connection)
    except OSError:  # the engine hung up, which is what some of these want
        return


@pytest.mark.parametrize("says", ["nothing", "a byte now and then"])
def test_who_takes_too_long_is_hung_up_on(tiny: Path, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    monkeypatch.setenv("VARBAND_OPENAI_TIMEOUT", "2")  # the engine itself must be up in it, on a busy machine too
    monkeypatch.setenv("VARBAND_OPENAI_PATIENCE", "0.5")
    over = threading.Event()

    def answer(connection: socket.socket) -> None:
        if says != "nothing":
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not over.wait(0.02):
            if says != "nothing":
                connection.sendall(b" ")

    with raw(answer, models=True) as url:
        sampler = engine(tiny, url)
        with pytest.raises(Parked, match="VARBAND_OPENAI_TIMEOUT"):
            list(sampler.generate(requests(2), None))
    over.set()


@pytest.mark.parametrize("name", ["VARBAND_OPENAI_TIMEOUT", "VARBAND_OPENAI_PATIENCE"])
@pytest.mark.parametrize("value", ["soon", "-1", "0", "nan", "inf"])
def test_seconds_that_are_none_are_refused_before_anything_is_asked(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=f"{name}={value}"):
        engine(tiny, "http://127.0.0.1:9/v1")


class Died(BaseException):
    """What nobody foresaw."""


def test_a_thread_that_dies_ends_the_call_with_what_finished(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an error that no line of the engine expects, not even an Exception."""
    with provider(lambda n, body: fine(body)) as url:
        sampler, read = engine(tiny, url), OpenAIGenerator._body

        def body(self: OpenAIGenerator, model: str, request: Any) -> dict[str, object]:
            if request.key == 7:
                raise Died("in a thread")
            return read(self, model, request)

        monkeypatch.setattr(OpenAIGenerator, "_body", body)
        got, ended = [], threading.Event()

        def call() -> None:
            with pytest.raises(Died):
                got.extend(sampler.generate(requests(200), None))
            ended.set()

        threading.Thread(target=call, daemon=True).start()
        assert ended.wait(60), "the call waits for a thread that is gone"


def test_what_finished_before_a_wrong_request_is_kept(tiny: Path) -> None:
    """It is paid for, whatever ended the call."""
    got = []
    with provider(lambda n, body: fine(body) if n <= 6 else (400, {"error": {"message": "no"}})) as url:
        batches = _durable_batches(engine(tiny, url).generate(requests(30), None), whole=False)
        with pytest.raises(UserError, match="no"):
            got.extend(completion for batch in batches for completion in batch)
    assert len(got) == 6


def test_the_key_goes_nowhere_but_where_the_operator_said(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []

    def listen(connection: socket.socket) -> None:
        heard.append(b"asked")

    monkeypatch.setenv("VARBAND_OPENAI_API_KEY", "sk-operators")
    with provider(lambda n, body: fine(body)) as theirs, raw(listen) as elsewhere:
        monkeypatch.setenv("VARBAND_OPENAI_BASE_URL", theirs)
        assert len(list(engine(tiny, "").generate(requests(1), None))) == 1
        assert len(list(engine(tiny, theirs).generate(requests(1), None))) == 1
        for address in (elsewhere, elsewhere.replace("127.0.0.1", "localhost"), theirs.replace("http", "https")):
            with pytest.raises(UserError, match="VARBAND_OPENAI_ALLOWED") as refused:
                OpenAIGenerator(tiny, Hardware(engine="openai", endpoint=address))
            assert "sk-operators" not in str(refused.value)
        assert not heard, "somebody else was asked"
        monkeypatch.setenv("VARBAND_OPENAI_BASE_URL", "https://models.example/v1")
        monkeypatch.setenv("VARBAND_OPENAI_ALLOWED", f"https://other.example/v1, {theirs}")
        assert len(list(engine(tiny, theirs).generate(requests(1), None))) == 1


@pytest.mark.parametrize("key", ["sk-se\ncret", "sk-secret-\u20ac"])
def test_a_key_that_no_header_can_carry_is_refused_unshown(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("VARBAND_OPENAI_API_KEY", key)
    with provider(lambda n, body: fine(body)) as url:
        monkeypatch.setenv("VARBAND_OPENAI_BASE_URL", url)
        with pytest.raises(UserError, match="VARBAND_OPENAI_API_KEY") as refused:
            engine(tiny, url)
    assert "sk-se" not in str(refused.value)
