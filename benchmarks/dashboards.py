"""How long people wait for the app: it opens and its pages change, in a real browser on a large store.

    python -m benchmarks.dashboards FOLDER [--artifacts 1000] [--rollouts 1000000]

FOLDER gets a store once (a minute or two, about 0.5 GB) and is used again afterwards. Prints one line a page: seconds to
the first visit, whose queries are asked, and to the second, for which they are remembered; beside each the CPU seconds
of the server, which say more on a busy machine. Needs Chromium.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from storage.artifacts.fingerprint import fingerprint
from storage.artifacts.kinds import Bands, Report, Rollouts
from storage.artifacts.provenance import provenance
from storage.artifacts.ref import Ref
from storage.artifacts.store import Payload, Store
from tests.chromium import headless
from tests.dashboards.synthetic import made_up_study, put
from tests.dashboards.visits import serving

PROBLEMS = 877
WORDS = ("so", "we", "let", "angle", "prime", "check", "thus", "carry", "the", "root", "sum", "Ann", "Bob", "\\(x^2\\)")
PAGES = ("Bands", "Training", "Results", "Traces", "Claims and audit", "Compare", "Overview")


def made(root: Path, artifacts: int, rollouts: int) -> None:
    """A made-up study of the published size, its rollouts repeated until there are as many as asked for, another to
    compare it with, and small artifacts up to their number."""
    if (root / "ready").exists():
        return
    shutil.rmtree(root, ignore_errors=True)
    small = made_up_study(root, problems=PROBLEMS, steps=100)
    store = Store(root)
    repeated(store, small, rollouts)
    bands = store.read(store.refs("bands")[0])
    for i in range(artifacts - len(store.refs())):
        put(store, Bands, bands.slice(0, 20), about=i)
    (root / "ready").touch()


def repeated(store: Store, report: Ref, rollouts: int) -> None:
    """A report over the same analysis, whose rollouts are those of `report` many times over."""
    manifest = store.manifest(report)
    roles = ("screenings", "evaluations", "final")
    inputs = {name: list(refs) for name, refs in manifest.recipe.inputs.items()}
    have = sum(store.manifest(Ref.parse(text)).rows for name in roles for text in inputs[name])
    times = -(-rollouts // have)
    for name in roles:
        for place, text in enumerate(inputs[name]):
            table = grown(store.read(Ref.parse(text)), times)
            inputs[name][place] = str(put(store, Rollouts, table, about=[text, times]))
    recipe = manifest.recipe.model_copy(update={"inputs": inputs})
    ref = Report.of(fingerprint(recipe.model_dump()))
    store.write(ref, Payload(store.read(report), store.files(report)), recipe, provenance(1.0))


def grown(table: pa.Table, times: int) -> pa.Table:
    """Each row `times` times, as further rollouts of its group, with completions of some 1,500 characters."""
    n = table.num_rows
    rng = np.random.default_rng(n)
    many = table.take(pa.array(np.repeat(np.arange(n), times)))
    groups = int(max(table["rollout"].to_pylist())) + 1
    index = np.asarray(many["rollout"]) + groups * np.tile(np.arange(times), n)
    said = [" ".join(rng.choice(WORDS, 300)) for _ in range(500)]
    texts = [f"<think>{i} {said[j]}</think>" for i, j in enumerate(rng.integers(0, len(said), many.num_rows))]
    for name, column in (
        ("rollout", pa.array(index, pa.int32())),
        ("completion", pa.array(texts)),
        ("trace", pa.array(texts)),
    ):
        at = many.schema.get_field_index(name)
        many = many.set_column(at, many.schema.field(at), column)
    return many


@dataclass(frozen=True, slots=True)
class Took:
    """seconds: until the page was there; cpu: of the server meanwhile."""

    seconds: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.seconds:>8.2f}{self.cpu:>8.2f}"


def measured(root: Path) -> list[tuple[str, Took, Took]]:
    """(page, its first visit, its second)."""
    with serving(root) as url, headless() as chromium:
        page = chromium.new_page(viewport={"width": 1400, "height": 1000})
        server = psutil.Process().children()[0]

        def timed(act: Callable[[], object], title: str) -> Took:
            used, began = sum(server.cpu_times()[:2]), time.monotonic()
            act()
            shown(page, title)
            return Took(time.monotonic() - began, sum(server.cpu_times()[:2]) - used)

        def change(title: str) -> Took:
            return timed(page.get_by_role("link", name=title, exact=True).click, title)

        opened, again = (timed(lambda: page.goto(url), "Overview") for _ in range(2))
        rounds = [{title: change(title) for title in PAGES} for _ in range(2)]
    return [("(opens)", opened, again), *((title, rounds[0][title], rounds[1][title]) for title in PAGES)]


def first_page(root: Path) -> float:
    """Seconds from the address to the whole page, of an app that nobody has looked at yet."""
    with serving(root) as url, headless() as chromium:
        page, began = chromium.new_page(viewport={"width": 1400, "height": 1000}), time.monotonic()
        page.goto(url)
        shown(page, "Overview")
        return time.monotonic() - began


def shown(page: Any, title: str) -> None:
    """Its heading is there and its script has ended."""
    page.wait_for_selector(f"h1:has-text('{title}')", timeout=120_000)
    page.wait_for_selector('[data-test-script-state="notRunning"]', timeout=120_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--artifacts", type=int, default=1_000)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    given = parser.parse_args()
    root = given.folder / f"store-{given.artifacts}-{given.rollouts}"
    made(root, given.artifacts, given.rollouts)
    store = Store(root)
    rows = sum(store.manifest(ref).rows for ref in store.refs("rollouts"))
    print(
        f"{len(store.refs()):,} artifacts, {rows:,} rollouts; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    print(f"{'page':<18}{'first':>8}{'cpu':>8}{'again':>8}{'cpu':>8}  seconds")
    for title, first, again in measured(root):
        print(f"{title:<18}{first}{again}")


if __name__ == "__main__":
    main()
