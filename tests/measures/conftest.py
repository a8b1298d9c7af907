"""Rollouts as stages meet them, from a few words: what several stage tests build on."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage.artifacts.schemas import Rollouts
from storage.artifacts.store import Store
from tasks.engines.toolbox import Toolbox
from tasks.stage import Session, session


def rows_of(
    groups: Mapping[str, str],
    *,
    arm: str = "panel",
    source: str = "amc",
    step: int = 0,
    adapter: str | None = None,
    tokens: int = 10,
    traces: bool = True,
) -> pa.Table:
    """problem → one letter a rollout: c(orrect), w(rong), t(runcated, no answer). Schema: Rollouts."""
    policy = {"source": source, "arm": arm, "adapter": adapter, "step": step, "seed": 0}
    fixed = {"completion": "x", "tag_valid": True, "reason": "", "grader_version": "1", "num_prompt_tokens": 1}
    rows = []
    for problem, letters in groups.items():
        for i, letter in enumerate(letters):
            answered = {"canonical": None if letter == "t" else f"{letter}{i % 2}", "answer": letter}
            graded = {"verdict": {"c": "correct", "t": "no_answer"}.get(letter, "wrong"), "correct": letter == "c"}
            spent = {"finish": "length" if letter == "t" else "stop", "num_tokens": tokens * (i + 1)}
            trace = {"trace": f"{problem} {i} {letter}" if traces and letter != "t" else None}
            rows.append({"problem_id": problem, "rollout": i} | policy | fixed | answered | graded | spent | trace)
    return pa.Table.from_pylist(rows, schema=Rollouts.schema)


def classed_by_letter(table: pa.Table) -> pa.Table:
    """With `answer_class`: 0 for c(orrect), 1 and 2 for w(rong) in turn, null for t(runcated)."""
    rows = zip(table["answer"].to_pylist(), table["rollout"].to_pylist(), strict=True)
    classes = [{"c": 0, "w": 1 + i % 2}.get(letter) for letter, i in rows]
    return table.append_column("answer_class", pa.array(classes, pa.int32()))


def row_of(table: pa.Table, **fields: Any) -> dict[str, Any]:
    """The only row with these values."""
    [found] = [row for row in table.to_pylist() if fields.items() <= row.items()]
    return found


@pytest.fixture
def in_store(tmp_path: Path) -> Iterator[Store]:
    """A store, with a session open on it."""
    made = Store(tmp_path / "store")
    made.prepare()
    with session(Session(made, Toolbox())):
        yield made
