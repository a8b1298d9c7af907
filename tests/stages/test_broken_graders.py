"""A grader of another package that raises stops the run once what was sampled is durable; a rare raise is counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from storage.errors import UserError
from storage.ledger import Ledger
from tasks.domain.grading.kinds import RAISED, pinned
from tasks.domain.problems.problems import PoolPolicy
from tasks.domain.problems.sources import source_spec
from tasks.domain.scaffolds import PANEL
from tasks.engines.grading.graders import ENOUGH_RAISED, GradeItem, Graders
from tasks.pool import build_pool, make_synthetic_pool
from tasks.splits import split_pool
from tasks.stage import Session, session
from tests.plugged import install
from tests.stages.test_readings import Lab, lab  # noqa: F401


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("plugged"))


@pytest.fixture(autouse=True)
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_one_that_raises_on_a_gold_is_refused_when_the_pool_is_built(lab: Lab) -> None:  # noqa: F811
    (file := lab.store.root / "hours.jsonl").write_text('{"uid": "a", "problem": "When?", "gold": "7"}')
    spec, path = source_spec(file, None)
    lab.toolbox.places[spec.sha256] = path
    policy = PoolPolicy(answer_kinds=(pinned("raising"),))
    said = r"^raised by grader raising@lab-tasks==1\.0: AttributeError: .* on the gold '7' itself"
    with session(Session(lab.store, lab.toolbox)), pytest.raises(UserError, match=said):
        build_pool(sources=(spec,), policy=policy)


def test_one_that_raises_on_every_other_answer_stops_once_they_are_durable(lab: Lab) -> None:  # noqa: F811
    with session(Session(lab.store, lab.toolbox)):
        lab.pool = make_synthetic_pool(per_source=8, seed=1)
        lab.splits = split_pool(pool=lab.pool, heldout_per_source=0, seed=0)
    broken = replace(PANEL, answer_kind=pinned("unequal"))
    sampled = 0
    for _ in range(2):
        with pytest.raises(UserError, match=r"unequal@lab-tasks==1\.0: KeyError: '7', as on all of \d+ different"):
            lab.rows(broken)
        sampled = lab.engine.sampled
        book = Ledger(lab.store.root)
        assert sum(rows.num_rows for account, _ in book.accounts() if (rows := book.read(account))) == sampled > 0
    assert lab.engine.sampled == sampled, "nothing is sampled again to be told so again"
    assert lab.rows(replace(PANEL, answer_kind="exact_text"))["verdict"].to_pylist(), "nor for a grader that works"
    assert lab.engine.sampled == sampled


def test_a_rare_raise_is_ungradable() -> None:
    hours = replace(PANEL, answer_kind=pinned("clock"))
    with Graders() as graders:
        falls = [GradeItem(hours, hours.answer_in_form("fall"), str(gold)) for gold in range(ENOUGH_RAISED)]
        said = graders.grade([*falls[1:], GradeItem(hours, hours.answer_in_form("noon"), "1")])
        assert [v.reason.startswith(RAISED) for v in said] == [True] * (ENOUGH_RAISED - 1) + [False]
        graders.refuse_broken(hours.answer_kind)
    with Graders() as graders:
        graders.grade(falls)
        with pytest.raises(UserError, match="ValueError: no hour"):
            graders.refuse_broken(hours.answer_kind)
