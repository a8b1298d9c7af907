"""What is asked by an adapter's ref brings its weights from object storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.ask import policy_of
from flows.running.sessions import stages_on
from flows.study.models import SHIPPED, base_model
from tasks.domain.policies import MadeElsewhere
from tasks.engines.adapter_files import adapter_files
from tasks.training import import_adapter
from tests.flows.test_s3 import bucket, machine, server
from tests.made_elsewhere import adapter

pytestmark = pytest.mark.slow

__all__ = ["bucket", "server"]  # fixtures


def test_an_adapter_comes_from_there_when_it_is_asked_something(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`varband ask` with --adapter, on a machine that has never seen it."""
    made, demo = adapter(tmp_path / "adapter", rank=2, hidden=8), SHIPPED["demo"]
    given = MadeElsewhere(name="elsewhere", sha256=adapter_files(made).digest)
    with stages_on(machine(bucket, tmp_path, "a", monkeypatch), places={given.sha256: made}):
        training = import_adapter(adapter=given, base=base_model("demo", demo))
    there = machine(bucket, tmp_path, "b", monkeypatch)
    asked = policy_of(there.root, str(training), None, None)
    assert asked.served is not None and (asked.base.name, asked.folder, asked.rank) == ("demo", demo, 2)
    assert adapter_files(asked.served.folder).digest == given.sha256 and asked.served.folder.is_relative_to(
        tmp_path / "b"
    )
