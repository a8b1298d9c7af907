"""A backup is a copy made again and again beside runs at work: what changes is renewed, and nothing says more than is
there. Of object storage it brings what this machine has never seen."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from cli.main import varband
from flows.study.prices import team_prices
from storage.artifacts.manifest import Provenance, Recipe
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import columns
from storage.artifacts.store import Payload, Store
from storage.errors import UserError
from storage.ledger import Account, Ledger
from storage.objects import Objects
from storage.records import copies, notes
from storage.records.copies import copy_study
from storage.records.decisions import newest_overrides, pin, pins, put_overrides
from storage.records.drift import DriftNote, drift_notes, note_drift
from storage.records.runs import Run, now, read_run, write_run
from storage.records.spending import Charge, Journal, charges
from storage.roots import root_folder
from tests.s3_server import object_storage

RUN = "demo-00000000"
NOTE = DriftNote(
    policy="p", metric="m", reference=1, low=0, high=1, value=2, rollouts=1, why="engine", since=now(), last=now()
)


class Kept(Ref, kind="kept", schema=columns("n big")):
    """Toy."""


REF = Kept.of("0" * 16)


def made(root: Path, ref: Ref = REF) -> Ref:
    told = Provenance(created=now(), seconds=0, code="x", python="3", packages={}, hardware="cpu", command="test")
    store = Store(root)
    store.prepare()
    store.write(ref, Payload(pa.table({"n": [1]})), Recipe(stage="toy", version=1, arguments={}, inputs={}), told)
    return ref


def run_in(root: Path, state: str, report: Ref | None = None) -> None:
    run = Run(
        id=RUN, profile="demo", request={}, state="running", started=now(), heartbeat=now(), host="elsewhere", pid=1
    )
    write_run(root, run.model_copy(update={"state": state, "report": report and str(report)}))


def charged(tokens: int) -> Charge:
    return Charge(time=now(), ref=str(REF), kind="rollouts", title="screen", tokens=tokens)


def test_a_run_that_went_on_elsewhere_is_not_put_back(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    made(here)
    run_in(here, "parked")
    copy_study(here, there)
    run_in(there, "finished", REF)
    copy_study(here, there)
    assert read_run(there, RUN).state == "finished"
    copy_study(there, here)
    assert read_run(here, RUN).state == "finished"


def test_a_run_that_finishes_meanwhile_is_not_finished_in_a_copy_without_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    made(here)
    run_in(here, "running")
    copied = copies._copy_artifact

    def meanwhile(*words: object, **more: object) -> object:
        run_in(here, "finished", made(here, Kept.of("1" * 16)))
        return copied(*words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(copies, "_copy_artifact", meanwhile)
    copy_study(here, there)
    assert Store(there).refs() == [REF] and read_run(there, RUN).state == "running"


@pytest.mark.slow
def test_object_storage_is_copied_whole_and_comes_back_from_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step on a machine that has seen neither root."""
    account = Account.of("p", {"seed": 1})

    def on_machine(name: str, address: str = "s3://varband-backups/team") -> Path:
        monkeypatch.setenv("VARBAND_CACHE", str(tmp_path / name))
        return root_folder(address)

    def check(root: Path) -> None:
        assert Store(root).refs() == [REF] and Store(root).has(REF) and Ledger(root).keys(account) == {("a", 0)}
        assert read_run(root, RUN).state == "parked" and notes.planned_refs(root, RUN) == [REF]
        assert charges(root, RUN)["tokens"].to_pylist() == [7] and newest_overrides(root)[0] == "{}\n"
        assert [one.why for one in pins(root)] == ["figure 3"] and drift_notes(root).num_rows == 1
        assert team_prices(root).month.usd == 500

    with object_storage() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.make_bucket("varband-backups")
        here = on_machine("a")
        made(here)
        Ledger(here).append(account, pa.table({"problem_id": ["a"], "rollout": [0]}), {"adapter": None})
        Journal(here, RUN).enter([charged(7)])
        notes.note_planned(here, RUN, [REF])
        run_in(here, "parked")
        pin(here, REF, "figure 3")
        put_overrides(here, "{}\n")
        note_drift(here, NOTE)
        Objects(here, "s3://varband-backups/team").put("prices.toml", b"[month]\nusd = 500\n")
        copy_study(on_machine("b"), tmp_path / "kept")
        check(tmp_path / "kept")
        copied = copy_study(tmp_path / "kept", on_machine("c", "s3://varband-backups/again"))
        assert (copied.artifacts, copied.shards) == (1, 1)
        check(again := on_machine("d", "s3://varband-backups/again"))
        assert copy_study(tmp_path / "kept", again).bytes == 0
        asked = ["export", "study", "s3://varband-backups/third", "--root", str(tmp_path / "kept")]
        assert CliRunner().invoke(varband, asked, catch_exceptions=False).exit_code == 0
        check(on_machine("e", "s3://varband-backups/third"))
        with pytest.raises(UserError, match="s3://varband-backups/again is on object storage, which holds no light"):
            copy_study(tmp_path / "kept", again, weights=False)
