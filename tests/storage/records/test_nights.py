"""Records of nights: one file a night and adapter, the last one of each in a table."""

from __future__ import annotations

from pathlib import Path

from storage.records.nights import NIGHTS, Night, last_nights, nights_of


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
