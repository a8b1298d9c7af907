"""Records of money and of people's verdicts, while clocks are set back and disks fill."""

import resource
from dataclasses import replace
from pathlib import Path

import pytest

from flows.running.accounting import accounted
from flows.running.plan import has_sampled, plan, sampled_here
from flows.running.sessions import Charging, silent
from flows.study.request import Request, beside, earlier_looks, entry_of, registered
from flows.study.resolve import Study
from storage.artifacts.store import Store
from storage.errors import Notice, UserError
from storage.ledger import ABOUT, Ledger
from storage.records.copies import copy_study
from storage.records.record import (
    NIGHTS,
    OVERRIDES,
    Night,
    entries,
    last_nights,
    newest_overrides,
    nights_of,
    put_overrides,
    register,
    register_path,
)
from storage.records.runs import all_runs, now, read_run
from storage.records.spending import Charge, Journal, charges
from tasks.rollouts import account_of
from tests.storage.records.test_garbage import recorded

CHARGE = Charge(time=now(), ref="r", kind="rollouts", title="t", tokens=7)


def test_half_a_line_that_found_no_room_takes_no_later_charge_with_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "demo-00000001")
    journal.enter([CHARGE])
    whole, limits = journal.path.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole + whole // 2, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            journal.enter([CHARGE])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert journal.path.stat().st_size == whole
    journal.enter([CHARGE])  # as the hours of a step are, on the way out
    assert charges(tmp_path)["tokens"].to_pylist() == [7, 7] and journal.spent().tokens == 14


def test_the_overrides_that_were_put_last_hold_though_the_clock_was_set_back(tmp_path: Path) -> None:
    first = put_overrides(tmp_path, "first\n")
    ahead = first.with_name(f"{int(first.stem) + 10**18:020d}.jsonl")
    first.rename(ahead)  # it was put by a clock that was 30 years ahead
    second = put_overrides(tmp_path, "second\n")
    assert newest_overrides(tmp_path) == ("second\n", str(second)) and ahead.exists()
    assert [path.name for path in (tmp_path / OVERRIDES).iterdir() if path.suffix != ".jsonl"] == []


# Records of nights: one file a night and adapter, the last one of each in a table.


def a_night(adapter: str, number: int = 1, **more: object) -> Night:
    given = {"adapter": adapter, "number": number, "at": "2026-01-01T02:00:00+00:00", "environment": {"engine": "e 1"}}
    given |= {"as_evaluated": True, "drawn": "nothing", "seed": 0, "group_size": 8, "state": "holds", "evaluated": 0.5}
    return Night.model_validate(given | {"found": "nothing changed"} | more)


def test_nights_are_kept_in_order_and_the_last_of_each_adapter_is_listed(tmp_path: Path) -> None:
    for number in (2, 11, 1):
        a_night("panel", number, state="drifted" if number == 11 else "holds").keep(tmp_path)
    a_night("control", 3).keep(tmp_path)
    assert [one.number for one in nights_of(tmp_path, "panel")] == [1, 2, 11]
    found = last_nights(tmp_path)
    assert found.schema == NIGHTS
    assert [(row["adapter"], row["state"]) for row in found.to_pylist()] == [("panel", "drifted"), ("control", "holds")]


# The register: entries in a chain, and what a study's report says of them.


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Request(profile="demo").study(Store(tmp_path), planning=True)


def test_a_changed_or_removed_entry_breaks_the_chain(study: Study, tmp_path: Path) -> None:
    for name in "ABC":
        register(tmp_path, entry_of(study, [name], "", sampled=False))
    path = register_path(tmp_path)
    first, second, third = path.read_bytes().splitlines()
    assert [entry.names for entry in entries(tmp_path)] == [("A",), ("B",), ("C",)]
    for lines in ([first, third], [first.replace(b'"A"', b'"Z"'), second, third], [second, third], [first[:50]]):
        path.write_bytes(b"\n".join(lines) + b"\n")
        with pytest.raises(UserError, match="line"):
            register(tmp_path, entry_of(study, ["D"], "", sampled=False))
        assert registered(study, tmp_path).startswith("Whether it was registered")


def test_a_ledger_with_one_of_its_accounts_has_sampled_a_study(study: Study, tmp_path: Path) -> None:
    planned = plan(study, store := Store(tmp_path))
    assert not has_sampled(planned, store)
    first = next(sampled_here(planned))
    (account := Ledger(tmp_path).folder(account_of(first.policy, first.sampling))).mkdir(parents=True)
    (account / ABOUT).write_text("{}")
    assert has_sampled(planned, store)


def test_a_copy_continues_the_register_and_replaces_no_other(study: Study, tmp_path: Path) -> None:
    """A study that is finished on another machine is registered there too."""
    source, target = tmp_path / "source", tmp_path / "target"
    register(source, entry_of(study, ["A"], "", sampled=False))
    copy_study(source, target)
    assert registered(study, target) == registered(study, source) and "by A." in registered(study, target)
    for root, name in ((source, "B"), (target, "C")):
        register(root, entry_of(study, [name], "", sampled=False))
    with pytest.warns(Notice, match="other entries"):
        copy_study(source, target)
    assert [entry.names for entry in entries(target)] == [("A",), ("C",)]


def test_a_report_says_when_a_study_was_registered_and_what_changed_since(study: Study, tmp_path: Path) -> None:
    assert registered(study, tmp_path) == "Not registered before sampling."
    register(tmp_path, entry_of(study, ["A", "B"], "", sampled=False))
    register(tmp_path, entry_of(study, ["C"], "later", sampled=True))
    today = f"on {now()[:10]} by A, B."
    assert registered(study, tmp_path) == f"Registered before sampling, {today}"
    more = replace(study, profile=replace(study.profile, seeds=(0, 1)))
    assert registered(more, tmp_path) == f"Registered before sampling, {today} Changed since: seeds: [0] → [0, 1]."


def test_looks_are_runs_that_differ_by_what_may_be_added(study: Study, tmp_path: Path) -> None:
    for number, changes in enumerate(
        [(), ("seeds: (0,) → (0, 1)", "final.group_size: 8 → 16"), ("training.steps: 40 → 8",)]
    ):
        recorded(tmp_path, name=f"demo-{number}", changes=changes, report=f"report-{number}")
    assert sorted(earlier_looks(study, tmp_path)) == ["report-0", "report-1"]


def test_other_values_of_a_matrix_are_runs_that_differ_in_its_axis_alone(study: Study, tmp_path: Path) -> None:
    at, longer = "rollouts.temperature: 1.0 → 0.5", "training.steps: 40 → 8"
    runs = [("mine/temperature=0.5", (at,)), ("mine/temperature=0.7", (at, longer)), ("other/temperature=0.9", (at,))]
    for number, (name, changes) in enumerate([*runs, ("mine/temperature=1.0", ()), ("mine", ())]):
        recorded(tmp_path, name=f"r-{number}", profile=name, changes=changes, report=f"report-{number}")
    mine = replace(study, profile=replace(study.profile, title="mine/temperature=1.0"))
    assert beside(mine, tmp_path) == ("temperature=0.5 report-0",)
    assert beside(study, tmp_path) == ()


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "demo-2.json").write_text("{")
    with pytest.warns(Notice, match=r"not listed: .*demo-2.json: not a run record"):
        assert all_runs(tmp_path) == []


def test_an_interrupted_run_is_called_interrupted(study: Study, tmp_path: Path) -> None:
    (store := Store(tmp_path)).prepare()
    planned, charging = plan(study, store), Charging(run="demo-1")
    with pytest.raises(KeyboardInterrupt), accounted(study, store, planned, charging, silent, {}):
        raise KeyboardInterrupt
    assert read_run(tmp_path, "demo-1").state == "interrupted"
