"""Searches: no method sees the gold, what two of them need is paid once, and what is cut is said."""

import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage.artifacts.schemas import Pool
from storage.errors import UserError
from storage.ledger import Ledger
from tasks.domain.policies import ServedAdapter
from tasks.domain.search.method import PREFIX
from tasks.engines.grading.graders import GradeItem, Graders
from tasks.engines.protocols import Completion, Request
from tasks.rollouts import account_of
from tasks.sampling import sample_rollouts
from tasks.searches import stepping
from tasks.stage import Session, session
from tests import warm
from tests.dashboards.synthetic import put
from tests.stages import search_lab
from tests.stages.search_lab import DRAW, END, EVERY, POLICY, SERVED, FromPromptAndSeed, Lab, a_lab, lab

__all__ = ["lab"]

#: They ask as `majority` does.
LIKE_MAJORITY = ("first", "likeliest", "shortest", "weighted_by_likelihood", "weighted_by_length")
EVOLVED = "evolution:population=2:generations=1"
STEPPED = f"beam:beams=2:expand=1:end={END}:by=process"


def spent(rows: list[dict[str, Any]]) -> int:
    return sum(row["num_prompt_tokens"] + row["num_tokens"] + row["num_scored_tokens"] for row in rows)


def with_golds(lab: Lab, golds: Sequence[str]) -> Pool:
    """The same problems with other golds."""
    table = lab.store.read(lab.pool)
    at = table.column_names.index("gold")
    told = table.set_column(at, table.schema.field(at), pa.array(golds, pa.string()))
    return put(lab.store, Pool, told, about="other golds")


@pytest.mark.parametrize("name", EVERY)
def test_no_method_sees_the_gold(lab: Lab, name: str) -> None:
    """With other golds the same is asked and the same is answered; only what is counted as correct differs."""
    rows = lab.search(name)
    golds = [["3", "1/2", "7"][i % 3] for i in range(lab.store.manifest(lab.pool).rows)]
    others = lab.search(name, with_golds(lab, golds))
    judged = ("correct", "chosen_correct")
    assert [{k: v for k, v in row.items() if k not in judged} for row in rows] == [
        {k: v for k, v in row.items() if k not in judged} for row in others
    ]
    assert [row["chosen_correct"] for row in rows] != [row["chosen_correct"] for row in others]


def test_what_two_methods_need_alike_is_paid_once(lab: Lab) -> None:
    """By the tokens of the ledger: majority and best-of-n draw what pass@k had drawn, and nothing else."""
    with session(Session(lab.store, lab.toolbox)):
        sample_rollouts(pool=lab.pool, splits=lab.splits, policy=POLICY, sampling=DRAW, group_size=8)
    account, book = account_of(POLICY, DRAW), Ledger(lab.store.root)

    def tokens() -> int:
        rows = book.rows(account, ["num_tokens"])
        return 0 if rows is None else sum(rows["num_tokens"].to_pylist())

    drawn, sampled = tokens(), lab.engine.sampled
    for name in ("first", "majority", "likeliest", "shortest", "weighted_by_length", "early_stopped"):
        lab.search(f"{name}:width=8")
    assert (tokens(), lab.engine.sampled) == (drawn, sampled)
    whole = lab.search("majority:width=16")
    base = {(row["problem_id"], int(row["node"].rpartition("/")[2])) for row in whole}
    assert {index for _, index in base} == set(range(16))
    assert lab.engine.sampled == 2 * sampled
    assert sum(row["num_tokens"] for row in whole) == tokens()
    scored = [row for row in lab.search("self_score:width=16") if row["operator"] == "score"]
    assert tokens() == sum(row["num_tokens"] for row in whole) + sum(row["num_tokens"] for row in scored)
    assert book.duplicates(account) == 0


def test_problems_are_batched_together_and_none_waits_for_another(tmp_path: Path, graders: Graders) -> None:
    """A round of all eight problems is one call of the engine; where a batch holds five, the first problems are in their
    second round before the last ones are in their first."""
    batches: list[list[str]] = []
    for size, sizes in ((16, [8, 8]), (5, [5, 5, 5, 1])):
        lab = a_lab(tmp_path / str(size), graders, batch_size=size)
        lab.search("early_stopped:width=2")
        batches = lab.engine.batches
        assert [len(batch) for batch in batches] == sizes
    assert set(batches[0]) & set(batches[1])


def test_a_budget_ends_a_search_after_the_round_that_reached_it(lab: Lab) -> None:
    rows = lab.search("majority", tokens=2_000)
    for problem in {row["problem_id"] for row in rows}:
        mine = [row for row in rows if row["problem_id"] == problem]
        assert spent(mine[:-1]) < 2_000 <= spent(mine)
        assert mine == [r for r in lab.search("majority") if r["problem_id"] == problem][: len(mine)]


def test_a_context_that_outgrows_the_model_cuts_the_round_and_says_so(lab: Lab) -> None:
    longest = max(row["num_prompt_tokens"] for row in lab.search("first:width=1"))
    tight = {"context": longest + DRAW.max_tokens}
    ref = lab.ref("self_score", **tight)
    rows = lab.store.read(ref).to_pylist()
    cut = [row for row in rows if row["cut"]]
    assert cut and all(row["operator"] == "score" and row["num_tokens"] == 0 for row in cut)
    assert f"max_tokens=8 do not fit the context of {tight['context']}" in cut[0]["cut"]
    assert lab.store.manifest(ref).provenance.notes["cut"].startswith(f"{len(cut)} requests of ")
    for row in cut:  # the search ends with what it had
        assert row["chosen"] and row["chosen"] == row["parents"]
    nothing = lab.search("first:width=1", context=1)
    assert all(row["cut"] and row["chosen"] is None and not row["chosen_correct"] for row in nothing)


def test_later_rounds_are_filed_by_what_they_are_made_of(lab: Lab) -> None:
    rows = [row for row in lab.search("self_score") if row["parents"]]
    assert rows and all(row["node"].startswith(PREFIX) for row in rows)
    parents = {row["node"] for row in lab.search("self_score")}
    assert {parent for row in rows for parent in row["parents"].split()} <= parents
    kept = Ledger(lab.store.root).keys(account_of(POLICY, DRAW))
    assert {row["node"] for row in rows} <= {f"{problem}/{index}" for problem, index in kept}
    other = replace(DRAW, seed=1)
    again = {row["node"] for row in lab.search("self_score", sampling=other) if row["parents"]}
    assert not again & {row["node"] for row in rows}  # other parents' words


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in SERVED if name not in LIKE_MAJORITY and ("by=" not in name or "process" in name)]
)
def test_a_stopped_search_goes_on_and_the_same_trees_come_out(tmp_path: Path, graders: Graders, name: str) -> None:
    """Stopped in the middle of every round, after every batch until it is done, it samples each batch once."""
    undisturbed, other = (a_lab(tmp_path / folder, graders, batch_size=6) for folder in ("undisturbed", "stopped"))
    whole = undisturbed.search(name)
    found, stops = other.stopped_after(1, name)
    assert found == whole and stops > len(undisturbed.engine.batches) / 3
    paid, expected = (list(dict.fromkeys(map(tuple, one.engine.batches))) for one in (other, undisturbed))
    assert paid == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", [EVOLVED, STEPPED])
def test_a_search_that_is_killed_for_good_leaves_the_same_trees(
    tmp_path: Path, graders: Graders, lab: Lab, name: str
) -> None:
    """SIGKILL in the middle of every second batch, in processes of their own."""
    command = [search_lab.__file__, str(tmp_path / "killed"), name]
    ends = []
    while not ends or ends[-1] == -signal.SIGKILL:
        ends.append(warm.run(command, engine=True).returncode)
    assert ends[-1] == 0 and len(ends) > 2
    other = a_lab(tmp_path / "killed", graders)
    found = other.search(name)
    assert other.engine.batches == [] and found == lab.search(name)


# What is amiss: no problem, no answer, no weights, another grader.


@pytest.mark.parametrize("size", [16, None])
def test_no_problem_is_no_search(tmp_path: Path, graders: Graders, size: int | None) -> None:
    lab = a_lab(tmp_path, graders, batch_size=size)
    assert lab.search(f"beam:end={END}", split="heldout") == [] and lab.engine.sampled == 0
    with pytest.raises(UserError, match="grader 0-none is not the active grader"):
        lab.search("first", grader_version="0-none")


# Step searches and streams through the stage: what a step goes on from, and that no problem waits for another.


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
