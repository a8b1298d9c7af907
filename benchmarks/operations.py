"""How much the house costs when there is nothing to make: orchestration, catalog, ledger.

    python -m benchmarks.operations            everything; starts a Prefect server on Postgres, of its own, on 127.0.0.1
    python -m benchmarks.operations --no-server

Prints one line a figure: measured, target, verdict. Exit code 1 if a target is missed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from flows.running.plan import execute, plan
from flows.running.sessions import unheard
from flows.study.request import Request
from flows.study.resolve import Study
from storage.artifacts.kinds.experiment import LEDGER
from storage.artifacts.manifest import Provenance, Recipe
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import columns
from storage.artifacts.store import Payload, Store
from storage.ledger import Account, Ledger
from storage.reading.catalog import artifacts
from tasks.domain.grading.grading import GRADER_VERSION

PROVENANCE = Provenance(
    created="2026-01-01T00:00:00+00:00", seconds=1, code="bench", python="3.11", packages={}, hardware="cpu", command=""
)


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: str
    target: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.target if self.at_least else self.value <= self.target

    def line(self) -> str:
        sign, verdict = "≥" if self.at_least else "≤", "met" if self.met else "MISSED"
        return f"{self.name:<62} {self.value:>12,.2f} {self.unit:<11} {sign} {self.target:>9,.0f}  {verdict}"


def paper_study(store: Store) -> Study:
    """The paper's profile as `varband plan` has it, where neither its models nor its files are."""
    return Request(profile="paper").study(store, planning=True)


def fill(store: Store, study: Study) -> int:
    """An artifact of one row for every stage of the plan."""
    store.prepare()
    planned = plan(study, store)
    for p in planned:
        store.write(p.step.ref, Payload(a_row(p.step.ref.schema)), p.step.recipe, PROVENANCE)
    return len(planned)


def a_row(schema: pa.Schema) -> pa.Table:
    """Of any kind; judged by the installed grader."""
    values = {"grader_version": GRADER_VERSION}
    cells = {field.name: values.get(field.name, _plain(field.type)) for field in schema}
    return pa.Table.from_pylist([cells], schema=schema)


def _plain(kind: pa.DataType) -> object:
    if pa.types.is_nested(kind):
        return []
    return "a" if pa.types.is_string(kind) else False if pa.types.is_boolean(kind) else 1


def reused_dag(root: Path, server: bool) -> Iterator[Figure]:
    study = paper_study(Store(root))
    stages = fill(Store(root), study)
    yield Figure(
        f"plan of the paper's DAG, all {stages} stages reused", timed(lambda: plan(study, Store(root))), "s", 1
    )
    plain = timed(lambda: execute(study, Store(root), unheard))
    yield Figure("the same carried out plainly", plain, "s", 1)
    if server:
        from flows.running.prefect_tasks import orchestrated
        from tests.servers import postgres, prefect_server

        with postgres() as database, prefect_server(root / ".server", database) as up:
            noise = ("PREFECT_LOGGING_LEVEL", "PREFECT_SERVER_LOGGING_LEVEL")  # as `varband run` has them
            settings = {k: v for k, v in up.environment.items() if k.startswith("PREFECT") and k not in noise}
            os.environ.update(settings)
            orchestrated(study, Store(root), unheard)  # a process pays for its imports once
            seconds = timed(lambda: orchestrated(study, Store(root), unheard))
            yield Figure("the same under a Prefect server", seconds, "s", 5)


class Toy(Ref, kind="toy", schema=columns("n big")):
    """An artifact like many."""


def catalog(root: Path, n: int = 10_000) -> Iterator[Figure]:
    store = Store(root)
    store.prepare()
    recipe = Recipe(stage="toy", version=1, arguments={"n": 1}, inputs={})
    first = Toy.of(f"{0:016x}")
    store.write(first, Payload(pa.table({"n": [1]})), recipe, PROVENANCE)
    manifest = (store.path(first) / "manifest.json").read_text()
    for i in range(1, n):
        ref = Toy.of(f"{i:016x}")
        store.path(ref).mkdir()
        (store.path(ref) / "manifest.json").write_text(manifest.replace(first.fingerprint, ref.fingerprint))
    yield Figure(f"reading the catalog of {n:,} artifacts", timed(lambda: artifacts(root)), "s", 2)


def ledger(root: Path, problems: int = 877, group_size: int = 128, tokens: int = 64) -> Iterator[Figure]:
    book, account = Ledger(root), Account.of("policy", "sampling")
    table = rollouts(problems, group_size, tokens)
    shard = 16_384
    parts = [table.slice(i, shard) for i in range(0, table.num_rows, shard)]
    seconds = timed(lambda: [book.append(account, part, {"arm": "panel"}) for part in parts], times=1)
    yield Figure(
        f"ledger append ({tokens} tokens a rollout)", table.num_rows / seconds, "rollouts/s", 50_000, at_least=True
    )
    wanted = {(f"p{i:04d}", j) for i in range(problems) for j in range(group_size)}
    yield Figure(
        f"what is missing of {problems} × {group_size} rollouts", timed(lambda: wanted - book.keys(account)), "s", 1
    )


def rollouts(problems: int, group_size: int, tokens: int) -> pa.Table:
    """Rows of LEDGER as a sampler would enter them."""
    n = problems * group_size
    values: dict[str, object] = {
        "problem_id": [f"p{i:04d}" for i in range(problems) for _ in range(group_size)],
        "rollout": np.tile(np.arange(group_size, dtype=np.int32), problems),
    }
    offsets = pa.array(np.arange(0, n * tokens + 1, tokens), pa.int32())
    ids = pa.array(np.random.default_rng(0).integers(0, 150_000, n * tokens), pa.int32())
    logs = pa.array(-np.random.default_rng(1).random(n * tokens), pa.float32())
    columns = []
    for field in LEDGER:
        if field.name in values:
            columns.append(pa.array(values[field.name], field.type))
        elif pa.types.is_list(field.type):
            columns.append(pa.ListArray.from_arrays(offsets, logs if field.name == "logprobs" else ids))
        elif pa.types.is_string(field.type):
            columns.append(pa.array(["some words of a completion, as long as that " * 3] * n, field.type))
        else:
            columns.append(pa.array(np.ones(n), pa.float64()).cast(field.type))
    return pa.table(columns, schema=LEDGER)


def timed(body: Callable[[], object], times: int = 3) -> float:
    """Wall seconds of the best of a few, because the machine may be shared."""
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        body()
        best = min(best, time.perf_counter() - began)
    return best


def main() -> None:
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        for figures in (
            reused_dag(at / "dag", "--no-server" not in sys.argv),
            catalog(at / "catalog"),
            ledger(at / "ledger"),
        ):
            for figure in figures:
                print(figure.line(), flush=True)
                missed += not figure.met
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
