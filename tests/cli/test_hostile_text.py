"""What a received root, or a model, has written: no terminal, spreadsheet or foreign page obeys it."""

import os
import signal
import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest
from click.testing import CliRunner
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from cli.main import varband
from cli.tables import flat, print_table
from storage.artifacts.manifest import Provenance, Recipe
from storage.artifacts.ref import Ref
from storage.artifacts.rows import Payload, columns
from storage.artifacts.store import Store
from tests.dashboards.visits import served


class Texts(Ref, kind="texts", schema=columns("text str")):
    """Toy."""


TITLE = "\x1b]0;taken\x07\x1b]52;c;cm0gLXJm\x07"


def test_show_obeys_no_escape_sequence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A terminal's title and clipboard; also in the words of an error."""
    words = dict.fromkeys(("code", "python", "hardware", "command"), TITLE) | {"created": "2026-11-01T00:00:00+00:00"}
    said = Provenance(seconds=0, packages={}, notes={TITLE: TITLE}, **words)
    ref = Texts.of("0" * 16)
    table = pa.table({"text": [TITLE]})
    Store(tmp_path).write(ref, Payload(table), Recipe(stage=TITLE, version=1, arguments={}, inputs={}), said)
    for words in (["store", "show", str(ref)], ["store", "ls"], ["store", "show", TITLE]):
        done = CliRunner().invoke(varband, [*words, "--root", str(tmp_path)])
        assert "\x1b" not in done.output and "\x07" not in done.output, words
    print_table(pa.table({f"n{TITLE}": [TITLE]}), as_json=False)
    assert "\x1b" not in capsys.readouterr().out


def test_an_exported_table_computes_nothing(tmp_path: Path) -> None:
    table = pa.table({"n": [-1.5, 2.0], "text": ["=cmd|'/c calc'!A0", "a = b"], "many": [["@sum(1)"], ["-1", "x"]]})
    pyarrow.csv.write_csv(flat(table), tmp_path / "t.csv")
    read = pyarrow.csv.read_csv(tmp_path / "t.csv").to_pydict()
    assert read["n"] == [-1.5, 2.0] and read["text"] == ["'=cmd|'/c calc'!A0", "a = b"]
    assert read["many"] == ["'@sum(1)", "'-1; x"]


def test_the_app_refuses_a_foreign_host(tmp_path: Path) -> None:
    """A name of another site that was pointed at 127.0.0.1: to the browser it is that site's own page."""
    Store(tmp_path).prepare()
    server, url = served(tmp_path)
    try:
        port = int(url.rpartition(":")[2])

        def visit(host: str) -> None:
            there = f"{host}:{port}"
            wire = socket.create_connection(("127.0.0.1", port))
            with connect(f"ws://{there}/_stcore/stream", sock=wire, origin=f"http://{there}"):  # type: ignore[arg-type]
                pass

        visit("127.0.0.1")
        visit("localhost")
        with pytest.raises(InvalidStatus, match="403"):
            visit("evil.example")
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()
