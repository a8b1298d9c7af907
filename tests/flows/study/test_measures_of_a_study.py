"""Which measures a study makes, where its file chooses some."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from flows.running.forecast import Forecast
from flows.running.plan import plan
from flows.study.request import Request, profile_of
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.budget import Budget
from tests import warm

SMALL = (
    'base = "demo"\narms = ["panel"]\nseeds = []\nmeasures = ["tokens", "g_pass"]\n[pool]\nsynthetic = 6\n'
    "heldout_per_source = 2\n[screening]\ngroup_size = 2\n[final]\ngroup_size = 2\n[passk]\nks = [1, 2]\n"
)


#: What has more inputs where diversity is measured too.
AFTER = ("render report", "measure answers", "compare diversity", "audit designs")


def test_those_that_are_chosen_are_planned_and_nothing_else_is_called_otherwise(tmp_path: Path) -> None:
    store = Store(tmp_path)
    chosen, every = (
        {p.step.title: p.step.ref for p in plan(Request(profile="a.toml", text=text).study(store), store)}
        for text in (SMALL, SMALL.replace('measures = ["tokens", "g_pass"]\n', ""))
    )
    assert {"measure widths", "measure votes"} <= every.keys() - chosen.keys() and "measure tokens" in chosen
    assert all(every[title] == ref for title, ref in chosen.items() if title in every and title not in AFTER)


def test_an_unknown_one_is_refused_with_its_line() -> None:
    with pytest.raises(
        UserError, match=r"mine.toml, line 2: measures: unknown measure 'widhts'; did you mean 'widths'"
    ):
        profile_of("mine.toml", 'base = "demo"\nmeasures = ["widhts"]\n')


@pytest.mark.slow
def test_the_report_is_of_those(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(SMALL)
    root = tmp_path / "root"
    command = [warm.VARBAND, "run", "a.toml", "--plain", "--json", "--root", str(root)]
    done = warm.run(command, cwd=tmp_path, env=warm.SHELL)
    assert done.returncode == 0, done.stderr
    kinds = {ref.kind for ref in Store(root).refs()}
    assert "tokens" in kinds and not kinds & {"widths", "votes", "solved_by"}
    assert Path(orjson.loads(done.stdout.splitlines()[-1])["html"]).is_file()


@pytest.mark.slow
def test_what_is_paid_for_is_measured_whatever_is_chosen(tmp_path: Path) -> None:
    """Searches were sampled and in no figure, and its command ended in an error of SQL."""
    (tmp_path / "a.toml").write_text(SMALL)
    root = tmp_path / "root"
    command = [warm.VARBAND, "run", "a.toml", "--set", "search.methods=majority", "--plain", "--root", str(root)]
    done = warm.run(command, cwd=tmp_path, env=warm.SHELL)
    assert done.returncode == 0, done.stderr
    kinds = {ref.kind for ref in Store(root).refs()}
    assert {"search_curves", "tokens"} <= kinds and "widths" not in kinds


def test_one_that_the_study_cannot_make_is_said_by_its_plan(tmp_path: Path) -> None:
    store, text = Store(tmp_path), SMALL.replace('"g_pass"', '"asymptotes", "over_seeds"')
    said = "measure asymptotes is chosen and not made: not asked in this run (profile field asymptote)"
    told = [*Forecast.of(Request(profile="a.toml", text=text).study(store), store, Budget()).sentences()]
    assert f"{said}; measure over_seeds is chosen and not made: nothing was trained" in told
    deep = Request(profile="a.toml", text=text, settings=("asymptote=64", "seeds=0"))
    assert not any("is chosen" in one for one in Forecast.of(deep.study(store), store, Budget()).sentences())
