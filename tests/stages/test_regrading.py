"""Regrading: new verdicts beside the old ones without sampling, whoever reads them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from cli.grade import regrade
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import Rollouts
from storage.artifacts.store import Store
from storage.records.record import put_overrides
from tasks.domain.grading.grading import GRADER_VERSION, ActiveGrader
from tasks.engines.grading.graders import Graders, with_verdicts
from tasks.grading import active_grader, actively_graded
from tasks.measures.bands import classify_bands
from tasks.regrading import changes, golds_of, moved
from tasks.regrading import regrade as regraded
from tasks.rollouts import ensure_rollouts, entered, requests_for
from tasks.sampling import sample_rollouts
from tasks.stage import Session, session, toolbox
from tests.stages.test_sampling import DRAW, GROUP, POLICY, Lab, lab

__all__ = ["lab"]


def _row(problem: str, rollout: int, answer: str, verdict: str) -> dict[str, object]:
    """Columns that it does not name are null."""
    return {"problem_id": problem, "source": "s", "arm": "panel", "step": 0, "seed": 0, "rollout": rollout} | {
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


# An override applies to everything stored, without sampling: artifacts, bands, and rows only the ledger has.


@pytest.fixture
def decided(lab: Lab) -> tuple[Lab, dict[str, str]]:
    """A screened pool, and an override that calls the engine's wrong answer right for the first problem."""
    first = lab.store.read(lab.pool).to_pylist()[0]
    line = {"answer": "-12345", "gold": first["gold"], "verdict": "correct", "reason": "a misprint in the gold"}
    return lab, line


def _correct(store: Store, rollouts: object, problem: str) -> set[bool]:
    return {r["correct"] for r in store.read(rollouts).to_pylist() if r["problem_id"] == problem}  # type: ignore[arg-type]


def test_an_override_reaches_the_next_run_and_samples_nothing(decided: tuple[Lab, dict[str, str]]) -> None:
    lab, line = decided
    problem = lab.store.read(lab.pool)["problem_id"][0].as_py()
    screening = lab.sample(sample_rollouts)
    paid = lab.engine.sampled
    assert regraded(rollouts=screening, pool=lab.pool, grader=toolbox().grader) == screening
    assert _correct(lab.store, screening, problem) == {False}

    put_overrides(lab.store.root, json.dumps(line))
    grader = active_grader(lab.store.root)
    assert toolbox().grader == ActiveGrader(), "a session keeps the grader that it began with"
    lab.toolbox.grader = grader
    with session(Session(lab.store, lab.toolbox)) as again:
        same = lab.sample(sample_rollouts)
        now = regraded(rollouts=same, pool=lab.pool, grader=grader)
        bands = classify_bands(rollouts=now)
        assert same == screening
        assert now != screening
        assert again.made == [now, bands]
    assert _correct(lab.store, now, problem) == {True}
    assert _correct(lab.store, screening, problem) == {False}, "what a report was made from stays as it was"
    band = {r["problem_id"]: r["band"] for r in lab.store.read(bands).to_pylist()}
    assert band[problem] == "all_one"
    assert set(lab.store.read(now)["grader_version"].to_pylist()) == {grader.version} != {GRADER_VERSION}

    more = requests_for(lab.store.read(lab.pool), POLICY, DRAW, range(GROUP))
    assert ensure_rollouts(more, None, POLICY.model, 0).rollouts == 0
    judged = entered(more)  # what training and growing groups read
    assert actively_graded(judged) is judged, "rows of the active grader are left alone"
    assert {r["correct"] for r in judged.to_pylist() if r["problem_id"] == problem} == {True}
    assert [(w.problem_id, w.rollout) for w in more] == [(r["problem_id"], r["rollout"]) for r in judged.to_pylist()]
    assert lab.engine.sampled == paid

    put_overrides(lab.store.root, "")
    assert active_grader(lab.store.root) == ActiveGrader(), "an empty file ends what was active"


def decide(lab: Lab, *options: str) -> dict[str, Any]:
    """What `grade store` prints."""
    words = ["--root", str(lab.store.root), "--json", *options]
    return json.loads(CliRunner().invoke(regrade, words, catch_exceptions=False).stdout)


def test_the_command_keeps_overrides_and_counts_what_only_the_ledger_has(
    decided: tuple[Lab, dict[str, str]], tmp_path: Path
) -> None:
    """Of an arm that no code knows the scaffold is found by digest in the manifests; of an account whose scaffold no
    manifest spells any more nothing is judged, and that is counted."""
    lab, line = decided
    problems = lab.store.manifest(lab.pool).rows
    scaffold = replace(POLICY.scaffold, name="ours", stop=("<end>", *POLICY.scaffold.stop))
    ours = replace(POLICY, arm="ours", scaffold=scaffold)
    small = lab.sample(sample_rollouts, policy=ours)
    lab.store.delete(lab.sample(sample_rollouts, GROUP + 4, policy=ours))
    (file := tmp_path / "overrides.jsonl").write_text(json.dumps(line))
    first = decide(lab, "--overrides", str(file))
    assert first["grader_version"].startswith(f"{GRADER_VERSION}+")
    assert [entry["changed"] for entry in first["artifacts"]] == [GROUP]
    assert first["ledger"] == {"rows": 4 * problems, "changed": 4, "unread": 0}
    assert [row["bands_changed"] for row in first["figures"]] == [1]
    assert decide(lab)["grader_version"] == first["grader_version"], "it stays active without being named again"
    assert lab.engine.sampled == problems * (GROUP + 4)
    for ref in (Ref.parse(first["artifacts"][0]["regraded"]), small):
        lab.store.delete(ref)
    file.write_text(json.dumps(line | {"reason": "decided again"}))
    again = decide(lab, "--overrides", str(file))
    assert again["ledger"] == {"rows": 0, "changed": 0, "unread": (GROUP + 4) * problems}
