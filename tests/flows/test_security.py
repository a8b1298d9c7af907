"""What must never happen: a secret in an artifact, a name that leaves the root, code from a model folder, an open port."""

from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.records.runs import run_path
from tasks.engines.learning import parallel
from tests.flows.running.test_accounting import CountingGenerator, attempt

SECRET = "sk-planted-0123456789abcdef"
NAUGHTY = st.text(max_size=60) | st.sampled_from(
    ["\x00", "../x", "/etc/passwd", "a/../../b", "..", "rollouts-../../..", "．．/x", "a∕b", "%2e%2e/x", "~/x", "-rf"]
)


@given(NAUGHTY)
def test_no_reference_from_a_user_leaves_the_root(name: str) -> None:
    root = Path("/some/place")
    try:
        path = Store(root).path(Ref.parse(name))
    except UserError:
        return
    assert path.resolve().is_relative_to(root)


@given(NAUGHTY)
def test_no_run_name_from_a_user_leaves_the_root(name: str) -> None:
    try:
        path = run_path(Path("/some/place"), name)
    except UserError:
        return
    assert path.resolve().is_relative_to("/some/place/runs")


def test_a_planted_key_is_in_no_file_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledger, artifacts, manifests, run records, spending: none of them holds what the environment holds."""
    for name in ("VARBAND_OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "PREFECT_API_AUTH_STRING"):
        monkeypatch.setenv(name, SECRET)
    attempt(tmp_path, "tokens=1e6", CountingGenerator())
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(files) >= 4
    assert [p for p in files if SECRET.encode() in p.read_bytes()] == []


def test_the_learners_processes_talk_on_this_machine_only() -> None:
    """torch's own store listens to the world, whatever host it is given."""
    here = psutil.Process()
    before = set(here.net_connections())
    store = parallel._store(0)
    opened = {c.laddr.ip for c in set(here.net_connections()) - before if c.status == psutil.CONN_LISTEN}
    assert opened == {"127.0.0.1"}
    del store
