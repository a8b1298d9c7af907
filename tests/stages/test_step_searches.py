"""Step searches and streams through the stage: what a step goes on from, and that no problem waits for another."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from storage.ledger import Ledger
from tasks.domain.policies import ServedAdapter
from tasks.domain.search.method import Rounds
from tasks.domain.search.selection import SelfScore
from tasks.engines.grading.graders import GradeItem, Graders
from tasks.engines.protocols import Completion, Request
from tasks.rollouts import account_of
from tasks.searches import stepping
from tests.stages.search_lab import DRAW, END, POLICY, FromPromptAndSeed, Lab, a_lab, graders, lab

__all__ = ["graders", "lab"]

BEAM = f"beam:beams=2:expand=2:end={END}:by=process"
STREAMED = [
    BEAM,
    *(
        pytest.param(one, marks=pytest.mark.slow)
        for one in ("majority:width=4", "revision:revisions=2", "debate:turns=1")
    ),
]


def a_path(row: dict[str, Any], rows: dict[str, dict[str, Any]]) -> str:
    before = a_path(rows[row["parents"]], rows) if row["parents"] else ""
    return before + row["completion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheard(SelfScore):
    """Self-scores, and what was told of them."""

    def rounds(self, question: str) -> Rounds:
        rounds, seen = SelfScore.rounds(self, question), None
        while True:
            try:
                asked = rounds.send(seen)  # type: ignore[arg-type]
            except StopIteration as end:
                return end.value
            seen = yield asked
            HEARD.update({c.name: c.answer for c in seen if not c.ask.answers})


HEARD: dict[str, str | None] = {}


def test_a_score_keeps_its_spelling_whatever_an_answer_is_called(lab: Lab) -> None:
    """0.5 of 10 is no answer to the problem, and not the same as the answer 1/2."""
    rows = lab.search(Overheard())
    assert {row["answer"] for row in rows if row["operator"] == "draw"} >= {"1/2", "0.5"}
    assert {row["node"]: row["answer"] for row in rows if row["operator"] == "score"} == HEARD


def test_a_step_goes_on_where_its_parent_stopped(lab: Lab) -> None:
    """By the prompts that the engine was sent, and by the ledger's account of a policy that stops at steps too."""
    table = lab.store.read(lab.pool).to_pylist()
    prompts = {POLICY.scaffold.prompt_text(row["problem"]): row for row in table}
    rows = {row["node"]: row for row in lab.search(BEAM)}
    sent = {prompt for batch in lab.engine.batches for prompt in batch}
    begun = {a_path(row, rows) for row in rows.values()}
    for text in sent:
        start = next(prompt for prompt in prompts if text.startswith(prompt))
        assert text == start or text.removeprefix(start) in begun
    assert any(text not in prompts for text in sent)
    kept = Ledger(lab.store.root).keys(account_of(stepping(POLICY, END), DRAW))
    assert {f"{problem}/{index}" for problem, index in kept} == set(rows)
    assert not Ledger(lab.store.root).keys(account_of(POLICY, DRAW))


def test_only_a_path_that_has_ended_answers_and_all_are_scored(lab: Lab, graders: Graders) -> None:
    found = lab.search(BEAM)
    rows = {row["node"]: row for row in found}
    golds = {row["problem_id"]: row["gold"] for row in lab.store.read(lab.pool).to_pylist()}
    whole = [row for row in found if "</answer>" in row["completion"] and row["finish"] == "stop"]
    assert whole and all(row["answer"] for row in whole)
    assert all(row["answer"] is None and not row["correct"] for row in found if row not in whole)
    items = [(POLICY.scaffold, a_path(r, rows), golds[r["problem_id"]], "stop") for r in whole]
    assert [row["correct"] for row in whole] == [v.correct for v in graders.grade([GradeItem(*i) for i in items])]
    assert all(0 < row["score"] < 1 and row["num_scored_tokens"] > 0 for row in found)


def test_a_path_has_the_tokens_of_one_completion(lab: Lab) -> None:
    """The last step is given what its path has left, and ends there."""
    rows = {row["node"]: row for row in lab.search(f"beam:beams=4:expand=4:end={END}:by=likelihood")}

    def length(row: dict[str, Any], rows: dict[str, dict[str, Any]] = rows) -> int:
        return row["num_tokens"] + (length(rows[row["parents"]]) if row["parents"] else 0)

    longest = max(map(length, rows.values()))
    assert longest == DRAW.max_tokens
    full = {row["node"] for row in rows.values() if length(row) == longest}
    assert not full & {row["parents"] for row in rows.values()}


class Straggling(FromPromptAndSeed):
    """The first request that it is sent ends last: once nothing else was asked for, for half a second."""

    def __init__(self) -> None:
        super().__init__()
        self.late: int | None = None

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        assert isinstance(requests, deque)
        first, waited = (requests.popleft() if self.late is None else None), 0
        while requests or first is not None:
            if requests:
                waited = 0
                yield from super().generate([requests.popleft()], adapter)
            elif waited < 50:
                waited += 1
                time.sleep(0.01)
            elif first is not None:
                self.late = len(self.batches)
                yield from super().generate([first], adapter)
                first = None


@pytest.mark.parametrize("name", STREAMED)
def test_where_sampling_streams_no_problem_waits_for_another(tmp_path: Path, graders: Graders, name: str) -> None:
    """All other problems are through with all of their rounds before the straggler's first has ended, and the trees are
    those of batches."""
    expected = a_lab(tmp_path / "batches", graders).search(name)
    engine = Straggling()
    lab = a_lab(tmp_path / "stream", graders, batch_size=None, engine=engine)
    assert lab.search(name) == expected
    problems = {row["problem"]: row["problem_id"] for row in lab.store.read(lab.pool).to_pylist()}
    served = [next(problems[text] for text in problems if text in batch[0]) for batch in engine.batches]
    assert engine.late is not None
    slow = served[engine.late]
    assert set(served[engine.late :]) == {slow} != set(served[: engine.late])
    assert engine.late >= len({row["node"] for row in expected if row["problem_id"] != slow})


@pytest.mark.parametrize("name", STREAMED)
def test_a_stream_that_is_stopped_goes_on_and_the_same_trees_come_out(
    tmp_path: Path, graders: Graders, name: str
) -> None:
    """Stopped after every fifth rollout until it is done; nothing that the ledger has is sampled again."""
    lab = a_lab(tmp_path / "stream", graders, batch_size=None)
    found, stops = lab.stopped_after(5, name)
    assert found == a_lab(tmp_path / "batches", graders).search(name) and stops > 1
    policies = {POLICY, stepping(POLICY, END)}
    assert sum(Ledger(lab.store.root).duplicates(account_of(policy, DRAW)) for policy in policies) == 0
