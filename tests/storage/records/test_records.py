"""Records of money and of people's verdicts, while clocks are set back and disks fill."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from storage.records.record import OVERRIDES, newest_overrides, put_overrides
from storage.records.runs import now
from storage.records.spending import Charge, Journal, charges

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
