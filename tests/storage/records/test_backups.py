"""A backup is a copy made again and again beside runs at work: what changes is renewed, and nothing says more than is
there. Of object storage it brings what this machine has never seen."""

from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from cli.main import varband
from flows.study.prices import team_prices
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.ledger import Account, Ledger
from storage.objects import Objects
from storage.records import copies
from storage.records.copies import copy_study
from storage.records.record import last_nights, newest_overrides, put_overrides
from storage.records.runs import note_planned, now, planned_refs, read_run
from storage.records.spending import Charge, Journal, charges
from storage.roots import root_folder
from tests.s3_server import object_storage
from tests.storage.records.test_copies import made
from tests.storage.records.test_garbage import recorded
from tests.storage.records.test_records import a_night

RUN = "demo-00000001"


def test_a_run_that_finishes_meanwhile_is_not_finished_in_a_copy_without_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    refs = made(here)
    recorded(here, "running")
    copied = copies._copy_artifact

    def meanwhile(*words: object, **more: object) -> object:
        recorded(here, "finished", report=str(made(here, 2)[-1]))
        return copied(*words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(copies, "_copy_artifact", meanwhile)
    copy_study(here, there)
    assert set(Store(there).refs()) == set(refs) and read_run(there, RUN).state == "running"


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
        assert all(map(Store(root).has, refs)) and Ledger(root).keys(account) == {("a", 0)}
        assert read_run(root, RUN).state == "parked" and planned_refs(root, RUN) == [*refs]
        assert charges(root, RUN)["tokens"].to_pylist() == [7] and newest_overrides(root)[0] == "{}\n"
        assert last_nights(root).num_rows == 1
        assert team_prices(root).month.usd == 500

    with object_storage() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.make_bucket("varband-backups")
        here = on_machine("a")
        refs = made(here)
        Ledger(here).append(account, pa.table({"problem_id": ["a"], "rollout": [0]}), {"adapter": None})
        Journal(here, RUN).enter([Charge(time=now(), ref="r", kind="rollouts", title="screen", tokens=7)])
        note_planned(here, RUN, refs)
        recorded(here, "parked")
        put_overrides(here, "{}\n")
        a_night("panel").keep(here)
        Objects(here, "s3://varband-backups/team").put("prices.toml", b"[month]\nusd = 500\n")
        copy_study(on_machine("b"), tmp_path / "kept")
        check(tmp_path / "kept")
        copied = copy_study(tmp_path / "kept", on_machine("c", "s3://varband-backups/again"))
        assert (copied.artifacts, copied.shards) == (3, 1)
        check(again := on_machine("d", "s3://varband-backups/again"))
        assert copy_study(tmp_path / "kept", again).bytes == 0
        asked = ["export", "study", "s3://varband-backups/third", "--root", str(tmp_path / "kept")]
        assert CliRunner().invoke(varband, asked, catch_exceptions=False).exit_code == 0
        check(on_machine("e", "s3://varband-backups/third"))
        with pytest.raises(
            UserError, match="s3://varband-backups/again is on object storage, where a copy needs weights"
        ):
            copy_study(tmp_path / "kept", again, weights=False)
