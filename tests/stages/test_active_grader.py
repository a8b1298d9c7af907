"""An override applies to everything stored, without sampling: artifacts, bands, and rows only the ledger has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.grade import regrade
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.records.decisions import put_overrides
from tasks.domain.grading.grading import GRADER_VERSION, ActiveGrader
from tasks.domain.problems.problems import PoolPolicy
from tasks.domain.problems.sources import source_spec
from tasks.engines.toolbox import Toolbox
from tasks.grading import active_grader, actively_graded
from tasks.measures.bands import classify_bands
from tasks.pool import as_first_checked, build_pool
from tasks.regrading import regrade as regraded
from tasks.rollouts import ensure_rollouts, entered, requests_for
from tasks.sampling import sample_rollouts
from tasks.splits import split_pool
from tasks.stage import Session, session, toolbox
from tests.stages.test_sampling import DRAW, GROUP, POLICY, Lab, lab

__all__ = ["lab"]  # the fixture


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
    problem = lab.store.read(lab.pool).to_pylist()[0]["problem_id"]
    screening = sample_rollouts(pool=lab.pool, splits=lab.splits, policy=POLICY, sampling=DRAW, group_size=GROUP)
    paid = lab.engine.sampled
    assert regraded(rollouts=screening, pool=lab.pool, grader=toolbox().grader) == screening
    assert _correct(lab.store, screening, problem) == {False}

    put_overrides(lab.store.root, json.dumps(line))
    grader = active_grader(lab.store.root)
    assert toolbox().grader == ActiveGrader(), "a session keeps the grader that it began with"
    lab.toolbox.grader = grader
    with session(Session(lab.store, lab.toolbox)) as again:
        same = sample_rollouts(pool=lab.pool, splits=lab.splits, policy=POLICY, sampling=DRAW, group_size=GROUP)
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
    assert {r["correct"] for r in judged.to_pylist() if r["problem_id"] == problem} == {True}
    assert [(w.problem_id, w.rollout) for w in more] == [(r["problem_id"], r["rollout"]) for r in judged.to_pylist()]
    assert lab.engine.sampled == paid

    put_overrides(lab.store.root, "")
    assert active_grader(lab.store.root) == ActiveGrader(), "an empty file ends what was active"


def test_rows_already_judged_by_the_active_grader_are_left_alone(lab: Lab) -> None:
    sample_rollouts(pool=lab.pool, splits=lab.splits, policy=POLICY, sampling=DRAW, group_size=GROUP)
    rows = entered(requests_for(lab.store.read(lab.pool), POLICY, DRAW, range(GROUP)))
    assert actively_graded(rows) is rows


def test_the_command_keeps_overrides_and_counts_what_only_the_ledger_has(
    decided: tuple[Lab, dict[str, str]], tmp_path: Path
) -> None:
    lab, line = decided
    problems = lab.store.read(lab.pool)
    sample_rollouts(pool=lab.pool, splits=lab.splits, policy=POLICY, sampling=DRAW, group_size=GROUP)
    lab.store.delete(
        sample_rollouts(pool=lab.pool, splits=lab.splits, policy=POLICY, sampling=DRAW, group_size=GROUP + 4)
    )
    file = tmp_path / "overrides.jsonl"
    file.write_text(json.dumps(line))
    command = ["--root", str(lab.store.root), "--json"]
    told = json.loads(CliRunner().invoke(regrade, [*command, "--overrides", str(file)], catch_exceptions=False).stdout)
    assert told["grader_version"].startswith(f"{GRADER_VERSION}+")
    assert [entry["changed"] for entry in told["artifacts"]] == [GROUP]
    assert told["ledger"] == {"rows": 4 * problems.num_rows, "changed": 4, "unread": 0}
    assert [row["bands_changed"] for row in told["figures"]] == [1]
    again = json.loads(CliRunner().invoke(regrade, command, catch_exceptions=False).stdout)
    assert again["grader_version"] == told["grader_version"], "it stays active without being named again"
    assert lab.engine.sampled == problems.num_rows * (GROUP + 4)


def test_a_study_s_own_arm_is_regraded_in_the_ledger_by_the_scaffold_that_read_it(lab: Lab, tmp_path: Path) -> None:
    """An arm that no code knows: its scaffold is found by digest in the manifests; of an account whose scaffold no
    manifest spells any more nothing is judged, and that is counted."""
    scaffold = replace(POLICY.scaffold, name="ours", stop=("<end>", *POLICY.scaffold.stop))
    ours = replace(POLICY, arm="ours", scaffold=scaffold)
    small = sample_rollouts(pool=lab.pool, splits=lab.splits, policy=ours, sampling=DRAW, group_size=GROUP)
    lab.store.delete(
        sample_rollouts(pool=lab.pool, splits=lab.splits, policy=ours, sampling=DRAW, group_size=GROUP + 4)
    )
    first = lab.store.read(lab.pool).to_pylist()[0]
    line = {"answer": "-12345", "gold": first["gold"], "verdict": "correct", "reason": "a misprint in the gold"}
    (tmp_path / "overrides.jsonl").write_text(json.dumps(line))
    command = ["--root", str(lab.store.root), "--json", "--overrides", str(tmp_path / "overrides.jsonl")]
    told = json.loads(CliRunner().invoke(regrade, command, catch_exceptions=False).stdout)
    assert told["ledger"] == {"rows": 4 * lab.store.read(lab.pool).num_rows, "changed": 4, "unread": 0}
    regraded_one = Ref.parse(told["artifacts"][0]["regraded"])
    lab.store.delete(regraded_one)
    lab.store.delete(small)
    (tmp_path / "overrides.jsonl").write_text(json.dumps(line | {"reason": "decided again"}))
    told = json.loads(CliRunner().invoke(regrade, command, catch_exceptions=False).stdout)
    whole = (GROUP + 4) * lab.store.read(lab.pool).num_rows
    assert told["ledger"] == {"rows": 0, "changed": 0, "unread": whole}


def test_a_new_grader_makes_no_other_pool_of_a_study(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"problem": "One and one?", "gold": "2"}\n{"problem": "Two and two?", "gold": "4"}\n')
    spec, path = source_spec(file, None)
    store, tools = Store(tmp_path / "store"), Toolbox(places={spec.sha256: path})
    store.prepare()
    with session(Session(store, tools)):
        old, now = PoolPolicy(grader="1-old"), PoolPolicy()
        assert as_first_checked(store, (spec,), now) == now
        pool = build_pool(sources=(spec,), policy=old)
        assert as_first_checked(store, (spec,), now) == old
        assert build_pool(sources=(spec,), policy=as_first_checked(store, (spec,), now)) == pool
        assert as_first_checked(store, (spec,), PoolPolicy(limit=1)) == PoolPolicy(limit=1)
    tools.close()


def _screened(lab: Lab, folder: Path, golds: dict[str, str]) -> list[dict[str, Any]]:
    """Rows of a pool of these problems, each with what was sampled of it."""
    folder.mkdir()
    (file := folder / "mine.jsonl").write_text(
        "".join(json.dumps({"problem": p, "gold": g}) + "\n" for p, g in golds.items())
    )
    spec, path = source_spec(file, None)
    lab.toolbox.places[spec.sha256] = path  # type: ignore[index]
    pool = build_pool(sources=(spec,), policy=PoolPolicy())
    splits = split_pool(pool=pool, heldout_per_source=0, seed=0)
    rows = lab.store.read(sample_rollouts(pool=pool, splits=splits, policy=POLICY, sampling=DRAW, group_size=GROUP))
    texts = {row["problem_id"]: row["problem"] for row in lab.store.read(pool).to_pylist()}
    return [row | {"gold": golds[texts[row["problem_id"]]]} for row in rows.to_pylist()]


def test_a_corrected_gold_is_graded_against_without_sampling(lab: Lab, tmp_path: Path) -> None:
    """Two misprinted golds, one of them the answer that is often given: verdicts are of the gold that was asked for."""
    right = dict(list(lab.engine.golds.items())[:3])
    one, two, three = right
    before = _screened(lab, tmp_path / "misprinted", right | {one: "-12345", three: "999999"})
    paid = lab.engine.sampled
    after = _screened(lab, tmp_path / "mended", right)
    assert lab.engine.sampled == paid == 3 * GROUP
    for rows in (before, after):
        assert [row["correct"] for row in rows] == [row["answer"] == row["gold"] for row in rows]
    assert [sum(row["correct"] for row in before if row["gold"] == gold) for gold in ("-12345", "999999")] == [GROUP, 0]
    assert [row for row in before if row["gold"] == right[two]] == [row for row in after if row["gold"] == right[two]]
    assert any(row["correct"] for row in after if row["gold"] == right[three])


def test_problems_that_differ_in_a_power_are_two(lab: Lab, tmp_path: Path) -> None:
    lab.engine.golds = {"Find 2⁵.": "32", "Find 25.": "25"}
    for name, problems in enumerate(lab.engine.golds.items()):
        assert len(_screened(lab, tmp_path / str(name), dict([problems]))) == GROUP
        assert lab.engine.sampled == (name + 1) * GROUP
