"""Light flows for tests of dispatch: each makes one toy artifact under VARBAND_ROOT, slowly, and says that it did."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from prefect import flow, get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.context import get_run_context

from flows.running.on_prefect import PrefectPool, cancel_children
from flows.running.pieces import dispatch
from storage.artifacts.ref import Ref
from storage.artifacts.rows import columns
from storage.artifacts.store import Store
from tasks.engines.toolbox import Toolbox
from tasks.stage import Session, session, stage, workdir

ROOT = Path(os.environ.get("VARBAND_ROOT", ".varband"))


class Toy(Ref, kind="toy_flow", schema=columns("name str, seconds big")):
    """Toy."""


@stage(Toy, version=1)
def make_slowly(*, name: str, seconds: int) -> pa.Table:
    """Counts seconds in a file that outlives a kill, as a training's checkpoint does."""
    done = workdir() / "seconds"
    for i in range(int(done.read_text() or 0) if done.exists() else 0, seconds):
        with (ROOT / "paid.log").open("a") as log:
            log.write(f"{name} {i}\n")
        time.sleep(1)
        done.write_text(str(i + 1))
    return pa.table({"name": [name], "seconds": [seconds]})


def _make(name: str, seconds: int) -> str:
    at = Store(ROOT)
    at.prepare()
    with session(Session(at, Toolbox())):
        return str(make_slowly(name=name, seconds=seconds))


@flow(name="toyarm", persist_result=False)
def toyarm(name: str, seconds: int) -> str:
    with (ROOT / "started.log").open("a") as log:
        log.write(f"{name} {os.getpid()}\n")
    return _make(name, seconds)


def _stop(flow: Any, flow_run: FlowRun, state: Any) -> None:
    cancel_children(str(flow_run.id))


@flow(name="toyparent", on_cancellation=[_stop], persist_result=False)
def toyparent(names: list[str], seconds: int = 8) -> list[str]:
    ROOT.mkdir(parents=True, exist_ok=True)
    (ROOT / "parent.pid").write_text(str(os.getpid()))
    run = str(get_run_context().flow_run.id)  # type: ignore[union-attr]
    pieces: list[Any] = [SimpleNamespace(key=n, name=n) for n in names]
    tell = get_run_logger().info
    with get_client(sync_client=True) as client:
        parameters = lambda piece: {"name": piece.name, "seconds": seconds}  # noqa: E731
        pool = PrefectPool(client, "toyarm/toyarm", "toy", run, parameters, tell)
        dispatch(lambda done: [one for one in pieces if one.key not in done], pool, tell)
    return [_make(n, seconds) for n in names]
