"""Regrading: new verdicts beside the old ones, what moved, and disputes for a person to decide."""

from __future__ import annotations

import pyarrow as pa
import pytest

from storage.artifacts.kinds import Rollouts
from storage.errors import UserError
from tasks.domain.grading.grading import Overrides, read_overrides
from tasks.engines.grading.graders import Graders, with_verdicts
from tasks.regrading import changes, disputes, golds_of, moved


def _row(problem: str, rollout: int, answer: str, verdict: str, arm: str = "panel") -> dict[str, object]:
    return {
        "problem_id": problem,
        "source": "s",
        "arm": arm,
        "adapter": None,
        "step": 0,
        "seed": 0,
        "rollout": rollout,
        "completion": f"<mutipersonaDebate>x</mutipersonaDebate> <answer>{answer}</answer>",
        "trace": "x",
        "tag_valid": True,
        "answer": answer,
        "canonical": answer,
        "verdict": verdict,
        "reason": "",
        "correct": verdict == "correct",
        "grader_version": "0-old",
        "finish": "stop",
        "num_prompt_tokens": 1,
        "num_tokens": 1,
        "logprob_sum": None,
    }


ROWS = pa.Table.from_pylist(
    [
        _row("p", 0, "7.0", "wrong"),
        _row("p", 1, "8", "wrong"),
        _row("q", 0, "3", "correct"),
        _row("q", 1, "3", "correct"),
    ],
    schema=Rollouts.schema,
)
PROBLEMS = pa.table({"problem_id": ["p", "q"], "gold": ["7", "3"]})


def test_regrading_changes_verdicts_and_nothing_else() -> None:
    golds = golds_of(ROWS, PROBLEMS)
    with Graders() as graders:
        after = with_verdicts(ROWS, golds, graders)
        version = graders.version
    assert after["verdict"].to_pylist() == ["correct", "wrong", "correct", "correct"]
    assert set(after["grader_version"].to_pylist()) == {version}
    kept = [
        c
        for c in Rollouts.schema.names
        if c not in ("answer", "canonical", "verdict", "reason", "correct", "grader_version")
    ]
    assert after.select(kept) == ROWS.select(kept)
    diff = changes(ROWS, after, golds).to_pylist()
    assert [(d["problem_id"], d["rollout"], d["was"], d["now"]) for d in diff] == [("p", 0, "wrong", "correct")]
    assert moved(ROWS, after).to_pylist() == [
        {"arm": "panel", "step": 0, "problems": 2, "accuracy_before": 0.5, "accuracy_after": 0.75, "bands_changed": 1}
    ]


def test_overrides_apply_when_regrading() -> None:
    decided = Overrides({("8", "7"): ("correct", "the gold is a misprint")})
    with Graders() as graders:
        after = with_verdicts(ROWS, golds_of(ROWS, PROBLEMS), graders, decided)
        assert set(after["grader_version"].to_pylist()) == {decided.version(graders.version)}
    assert after["verdict"].to_pylist()[1] == "correct"
    assert after["reason"].to_pylist()[1] == "override: the gold is a misprint"


def test_a_problem_outside_the_pool_is_refused() -> None:
    with pytest.raises(UserError, match="1 problems of the rollouts are not in their pool, first q"):
        golds_of(ROWS, PROBLEMS.slice(0, 1))


def test_disputes_are_where_grader_and_cross_check_differ() -> None:
    rows = ROWS.append_column("gold", pa.array(["7", "7", "3", "4"]))
    found = disputes([rows]).to_pylist()
    assert disputes(rows.slice(i, 1) for i in range(rows.num_rows)).to_pylist() == found
    assert [(d["answer"], d["gold"], d["verdict"], d["cross_check"]) for d in found] == [
        ("3", "4", "correct", "different"),
        ("7.0", "7", "wrong", "same"),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"answer": "8", "gold": "7", "verdict": "right", "reason": "x"}', "field 'verdict' is 'right'"),
        ('{"answer": "8", "gold": "7", "verdict": "correct"}', "field 'reason'"),
        ("{", "is not JSON"),
    ],
)
def test_bad_overrides(line: str, words: str) -> None:
    with pytest.raises(UserError, match=r"overrides\.jsonl, line 1") as error:
        read_overrides(line, "overrides.jsonl")
    assert words in str(error.value)
