"""A price needs no weights and no data: what is not here is said, and everything that hangs on it is to be made."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from flows.running.plan import plan
from flows.study.profiles import PROFILES
from flows.study.request import Request
from storage.artifacts.store import Store
from storage.errors import UserError
from tests import warm

PRICED = ("paper", "qwen-1.5b/objectives")


def planned(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    bare = warm.SHELL | {"VARBAND_MODELS": str(folder / "none"), "VARBAND_DATA": str(folder / "none")}
    return warm.run([warm.VARBAND, "plan", *words], cwd=folder, env=bare)


@pytest.mark.parametrize("profile", PRICED)
def test_a_study_is_priced_where_nothing_of_it_is(profile: str, tmp_path: Path) -> None:
    done = planned(tmp_path, profile, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["total"]["tokens"] > 0 and told["total"]["usd"] > 0 and told["stages"]
    assert not any(stage["reused"] for stage in told["stages"])
    said = next(note for note in told["notes"] if note.startswith("not on this machine"))
    models = {PROFILES[profile].base_of(arm) for arm in PROFILES[profile].arms}
    assert all(name in said for name in (*models, *PROFILES[profile].pool.sources, PROFILES[profile].encoder.name))
    assert not [*tmp_path.iterdir()]


def test_what_is_here_keeps_its_name_and_a_run_still_asks_for_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARBAND_MODELS", str(tmp_path))
    store, request = Store(tmp_path / "store"), Request(profile="demo", settings=("arms.thinking.model=elsewhere",))
    whole = {p.step.title: p.step.ref for p in plan(Request(profile="demo").study(store), store)}
    lacking = {p.step.title: p.step.ref for p in plan(request.study(store, planning=True), store)}
    assert lacking["screen panel"] == whole["screen panel"] and lacking["screen thinking"] != whole["screen thinking"]
    with pytest.raises(UserError, match=r"^--set arms.thinking.model: base model elsewhere is not there"):
        request.study(store)
