"""What a study says beside its sampling and training: a budget, no part of any name; measures; other packages' code."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flows.running.forecast import Forecast
from flows.running.plan import plan
from flows.study.files import written_out
from flows.study.prices import prices_of, team_prices
from flows.study.request import Request, profile_of
from storage.artifacts.schemas import Rollouts
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.records.runs import Amounts, run_id
from storage.records.spending import PRICES, Charge, Journal, spent_in_month
from tasks.domain.budget import Budget, Prices
from tasks.engines.hardware import Hardware
from tasks.metering import BudgetExceeded, Meter, of_team
from tasks.stage import Progress
from tests.flows.running.test_accounting import COMPLETION, PROMPT, CountingGenerator, attempt

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


def test_a_measure_that_the_study_cannot_make_is_said_by_its_plan(tmp_path: Path) -> None:
    store, text = Store(tmp_path), SMALL.replace('"g_pass"', '"asymptotes", "over_seeds"')
    said = "measure asymptotes is chosen and not made: not requested in this run (profile field asymptote)"
    told = [*Forecast.of(Request(profile="a.toml", text=text).study(store), store, Budget()).sentences()]
    assert f"{said}; measure over_seeds is chosen and not made: nothing was trained" in told


# Prices of the team: what is read, what is refused, and that a limit on money stops whoever is paid by the token.


WRITTEN = """
[devices]
H100 = 1.25
[remote."*"]
prompt = 100
completion = 200
[remote."models.example"]
prompt = 1000
completion = 4000
[month]
usd = 0.5
"""
REMOTE = Hardware(engine="openai", endpoint="https://models.example/v1")


def written(root: Path, text: str = WRITTEN) -> Path:
    root.mkdir(exist_ok=True)
    (root / PRICES).write_text(text)
    return root


def test_the_teams_prices_stand_above_the_listed_ones(tmp_path: Path) -> None:
    """An hour of an H100 is 1.25 $ and of an H200 the list's 3.50 $; a thousand tokens each way there cost 1 + 4 $."""
    team = team_prices(written(tmp_path))
    local = team.of("paper", Hardware())
    assert [local.of_hours(f"NVIDIA {name}", 1) for name in ("H100", "H200")] == [1.25, 3.5]
    assert local.of_tokens("panel", 1000, 1000) == 0
    assert team.of("paper", REMOTE).of_tokens("panel", 1000, 1000) == 5.0
    elsewhere = Hardware(engine="openai", endpoint="https://other.example/v1")
    assert team.of("paper", elsewhere).of_tokens("panel", 1000, 1000) == pytest.approx(0.3)
    assert team_prices(tmp_path / "none").of("paper", Hardware()).of_hours("H100", 1) == 2.5


def test_what_cannot_be_meant_is_refused_by_name(tmp_path: Path) -> None:
    words = f"{PRICES}, line 2: devices.H100: H100 is -1; it must be greater than or equal to 0"
    with pytest.raises(UserError, match=words):
        team_prices(written(tmp_path, "[devices]\nH100 = -1"))


def test_money_limits_no_server_whose_tokens_have_no_price(tmp_path: Path) -> None:
    unpriced, priced = team_prices(tmp_path), team_prices(written(tmp_path / "priced"))
    with pytest.raises(UserError, match=r'\[remote."models.example"\]'):
        unpriced.check_limits(unpriced.of("paper", REMOTE), REMOTE, Budget(usd=5), tmp_path)
    unpriced.check_limits(unpriced.of("paper", REMOTE), REMOTE, Budget(tokens=5), tmp_path)
    unpriced.check_limits(unpriced.of("paper", Hardware()), Hardware(), Budget(usd=5), tmp_path)
    priced.check_limits(priced.of("paper", REMOTE), REMOTE, Budget(usd=5), tmp_path)


def test_a_limit_in_dollars_on_a_device_without_a_price_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    """Before, the hours of such a device cost nothing, and `--budget usd=2` limited nothing."""
    study = Request(profile="demo").study(Store(tmp_path), planning=True)
    assert any("[devices]" in one for one in Forecast.of(study, Store(tmp_path), Budget(usd=2)).warnings)
    meter = Meter(Journal(tmp_path, "demo-1"), Budget(usd=2), prices_of("demo"))
    begun = Progress("started", "sample", Rollouts("rollouts", "1" * 16))
    with pytest.raises(UserError, match="cpu has no price"):
        meter.listening(lambda _: None)(begun)
    Meter(Journal(tmp_path, "demo-1"), Budget(usd=2), Prices(devices={"cpu": 0.0})).listening(lambda _: None)(begun)


def test_a_plan_names_the_prices_that_a_tinker_study_lacks(tmp_path: Path) -> None:
    """And has its cost once they are there: 6 $ for a million tokens of each kind."""
    study = Request(profile="a.toml", text=PLAIN, settings=("hardware.engine=tinker",)).study
    store, host = Store(tmp_path), "tinker.thinkingmachines.dev"
    lacking = f"no US$ of the service: prompt, completion, training tokens of {host} have no price"
    assert any(lacking in one for one in Forecast.of(study(store), store, Budget()).warnings)
    some = f'[remote."{host}"]\nprompt = 1\ncompletion = 2\n'
    written(tmp_path, some)
    plan = Forecast.of(study(store), store, Budget())
    assert any(f"service: training tokens of {host}" in one for one in plan.warnings)
    assert not Forecast.of(study(store), store, Budget(usd=5)).limits
    team, hardware = team_prices(tmp_path), study(store).profile.hardware
    with pytest.raises(UserError, match="training = "):
        team.check_limits(team.of("demo", hardware), hardware, Budget(usd=5), tmp_path)
    written(tmp_path, some + "training = 3\n")
    priced = Forecast.of(study(store), store, Budget())
    assert not any("US$" in one for one in priced.warnings)
    trained = sum(c.tokens for p, c in zip(priced.planned, priced.costs, strict=True) if p.step.ref.kind == "training")
    assert priced.whole.usd > plan.whole.usd > 0 and priced.whole.usd < plan.whole.usd + 3 * trained / 1e6


def test_tokens_of_a_remote_engine_reach_the_limit_on_money(tmp_path: Path) -> None:
    """10 + 40 tokens a rollout may cost 0.01 + 0.16 $ and cost 0.01 + 0.08; batches of 6: 1.02 before, 0.54 after."""
    prices = team_prices(written(tmp_path)).of("paper", REMOTE)
    generator = CountingGenerator()
    with pytest.raises(BudgetExceeded, match="US dollars"):
        attempt(tmp_path, "usd=2.0", generator, prices=prices)
    each = (PROMPT * 1000 + COMPLETION * 4000) / 1e6
    spent = Journal(tmp_path, "toy-1234").spent().usd
    assert spent == pytest.approx(len(generator.sampled) * each) and spent <= 2.0
    assert len(generator.sampled) == 12, "0.54 and 1.02 fit beneath 2, 1.08 and 1.02 do not"


def test_a_month_is_all_runs_together_and_no_other_month(tmp_path: Path) -> None:
    """100 tokens of another run this month and 70 of the last one, beneath a limit of 820: 720 are left, as for a run
    whose own limit is that."""
    today = datetime.now(UTC)
    before = today.replace(day=1) - timedelta(days=1)
    for run, when, tokens in (("other-1", today, 100), ("other-2", before, 70)):
        time = when.isoformat(timespec="seconds")
        Journal(tmp_path, run).enter([Charge(time=time, ref="r", kind="rollouts", title="t", tokens=tokens)])
    assert spent_in_month(tmp_path, today.strftime("%Y-%m")).tokens == 100
    assert spent_in_month(tmp_path, before.strftime("%Y-%m")).tokens == 70
    generator = CountingGenerator()
    with pytest.raises(BudgetExceeded, match=r"the team's month: .*raise \[month\]") as wall:
        attempt(tmp_path, None, generator, month=Budget(tokens=820))
    assert of_team(wall.value) and len(generator.sampled) == 18, "0, 180 and 360 leave 300 for a batch; 540 + 300 > 720"
    with pytest.raises(BudgetExceeded, match="the budget leaves") as own:
        attempt(tmp_path, "tokens=600", generator, month=Budget(tokens=10_000))
    assert not of_team(own.value)
