"""What a study says beside its sampling and training: a budget, no part of any name; measures; other packages' code."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from flows.running.forecast import Forecast
from flows.running.plan import plan
from flows.study.changes import written_out
from flows.study.request import Request, profile_of
from storage.artifacts.store import Store
from storage.records.runs import Amounts, run_id
from storage.records.spending import Charge, Journal
from tasks.domain.budget import Budget
from tests import warm

PLAIN = 'base = "demo"\n[training]\nsteps = 3\n'
HELD = PLAIN + "[budget]\ntokens = 2e4\nusd = 20\n"


def test_a_file_says_it_and_nothing_is_called_otherwise(tmp_path: Path) -> None:
    """Of a file that is written out again, too."""
    store, found = Store(tmp_path), []
    for text in (PLAIN, HELD):
        study = Request(profile="mine.toml", text=text).study(store)
        found.append([p.step.ref for p in plan(study, store)])
        assert not any("budget" in change for change in study.changes) and "[budget]" not in study.settings
    assert found[0] == found[1]
    own = profile_of("mine.toml", HELD)
    assert own.budget == Budget(tokens=20_000, usd=20)
    assert profile_of("mine.toml", f'base = "demo"\n{written_out(own)}').budget == own.budget


@pytest.mark.slow
def test_the_run_parks_at_it_and_goes_on_with_more(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'base = "demo"\narms = ["panel"]\nseeds = []\n[pool]\nsynthetic = 6\nheldout_per_source = 2\n'
        "[screening]\ngroup_size = 2\n[final]\ngroup_size = 2\n[budget]\ntokens = 2000\n"
    )

    def varband(*words: str) -> tuple[int, str]:
        done = warm.run([warm.VARBAND, *words, "--root", str(tmp_path / "root")], cwd=tmp_path, env=warm.SHELL)
        return done.returncode, done.stdout + done.stderr

    code, said = varband("plan", "mine.toml")
    assert code == 0 and "budget tokens=2000 does not hold: the run would pause" in said
    code, said = varband("run", "mine.toml", "--plain")
    assert code == 75 and "more than the budget leaves (0 of 2,000 tokens)" in said, said
    code, said = varband("plan", "mine.toml", "--budget", "tokens=1e6")
    assert code == 0 and "budget tokens=1000000 holds" in said
    code, said = varband("runs", "--json")
    [run] = orjson.loads(said)
    assert run["state"] == "parked"


def test_a_plan_counts_what_the_run_has_spent(tmp_path: Path) -> None:
    """A limit holds for all attempts: what the first of them took is not there for the next."""
    store = Store(tmp_path)
    study = Request(profile="mine.toml", text=PLAIN).study(store)
    need = Forecast.of(study, store, Budget()).whole.tokens
    run = run_id(study.profile.called, plan(study, store)[-1].step.ref)
    Journal(tmp_path, run).enter([Charge(time="2026-11-01T00:00:00+00:00", ref="", kind="", title="", tokens=100)])
    for limit, verdict in ((need + 99, "does not hold: the run would pause"), (need + 100, "holds")):
        priced = Forecast.of(study, store, Budget(tokens=limit))
        said = [*priced.sentences()][-1]
        assert verdict in said and "(about" in said and "beside 100 that its run has spent" in said
        assert priced.as_json()["spent"] == Amounts(tokens=100).model_dump()


SMALL = (
    'base = "demo"\narms = ["panel"]\nseeds = []\nmeasures = ["tokens", "g_pass"]\n[pool]\nsynthetic = 6\n'
    "heldout_per_source = 2\n[screening]\ngroup_size = 2\n[final]\ngroup_size = 2\n[passk]\nks = [1, 2]\n"
)
#: What has more inputs where diversity is measured too.
AFTER = (
    "render report",
    "classes of panel at step 0",
    "answers of panel at step 0",
    "compare diversity",
    "audit designs",
)


def test_measures_that_are_chosen_are_planned_and_nothing_else_is_called_otherwise(tmp_path: Path) -> None:
    store = Store(tmp_path)
    chosen, every = (
        {p.step.title: p.step.ref for p in plan(Request(profile="a.toml", text=text).study(store), store)}
        for text in (SMALL, SMALL.replace('measures = ["tokens", "g_pass"]\n', ""))
    )
    assert {"measure widths", "measure votes"} <= every.keys() - chosen.keys() and "measure tokens" in chosen
    assert all(every[title] == ref for title, ref in chosen.items() if title in every and title not in AFTER)


def test_a_measure_that_the_study_cannot_make_is_said_by_its_plan(tmp_path: Path) -> None:
    store, text = Store(tmp_path), SMALL.replace('"g_pass"', '"asymptotes", "over_seeds"')
    said = "measure asymptotes is chosen and not made: not requested in this run (profile field asymptote)"
    told = [*Forecast.of(Request(profile="a.toml", text=text).study(store), store, Budget()).sentences()]
    assert f"{said}; measure over_seeds is chosen and not made: nothing was trained" in told
