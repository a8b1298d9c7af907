"""Copies of a study: whole, light, grown a piece at a time; what is there is never changed."""

import shutil
from pathlib import Path

import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.artifacts.rows import columns
from storage.artifacts.store import Store, left_out
from storage.ledger import Account, Ledger
from storage.records.copies import copy_study
from storage.records.runs import note_planned
from tasks.domain.policies import BaseModel, Policy
from tasks.engines.toolbox import Toolbox
from tasks.stage import Payload, Session, session, stage, store, workdir


class Ores(Ref, kind="ores", schema=columns("n big")):
    """Toy."""


class Swords(Ref, kind="swords", schema=columns("n big")):
    """Toy: its weights are heavy."""

    WEIGHTS = "files/step-"


class Fights(Ref, kind="fights", schema=columns("n big")):
    """Toy."""


@stage(Ores, version=1)
def dig(*, n: int) -> pa.Table:
    return pa.table({"n": [n]})


@stage(Swords, version=1)
def forge(*, ores: Ores) -> Payload:
    files = workdir() / "files"
    for step in ("step-0000", "step-0001"):
        (files / step).mkdir(parents=True)
        (files / step / "adapter.bin").write_bytes(b"w" * 500)
    (files / "exposure.txt").write_text("light")
    return Payload(store().read(ores), files)


@stage(Fights, version=1)
def fight(*, sword: Swords, policy: Policy) -> pa.Table:
    return store().read(sword)


def fought(sword: Swords, step: int = 1) -> Fights:
    """With the adapter of step 1 of the sword's training; step: how far the studied training had come."""
    model = BaseModel(sha256="0" * 64)
    return fight(sword=sword, policy=Policy(arm="panel", model=model, adapter=str(sword), adapter_step=1, step=step))


def made(root: Path, n: int = 1, step: int = 1) -> tuple[Ores, Swords, Fights]:
    at = Store(root)
    at.prepare()
    with session(Session(at, Toolbox())):
        ores = dig(n=n)
        sword = forge(ores=ores)
        refs = ores, sword, fought(sword, step)
    shutil.rmtree(root / ".work", ignore_errors=True)
    return refs


def entered(root: Path, adapter: str | None, name: str) -> Account:
    account = Account.of(name, {"seed": 1})
    Ledger(root).append(account, pa.table({"problem_id": [name], "rollout": [0]}), {"adapter": adapter})
    return account


def test_a_light_copy_is_whole_but_for_the_weights(tmp_path: Path) -> None:
    refs, here, there = made(tmp_path / "here"), tmp_path / "here", tmp_path / "there"
    copied = copy_study(here, there, weights=False)
    assert copied.artifacts == 3 and copied.left_bytes == 1000
    sword, light = Store(there).files(refs[1]), Store(there)
    assert not (sword / "step-0001").exists() and (sword / "exposure.txt").read_text() == "light"
    assert all(light.fresh(ref) for ref in refs)
    light.examine(light.manifest(refs[1]))
    with session(Session(light, Toolbox())) as current:
        fought(forge(ores=dig(n=1)))
    assert current.made == []


def test_a_light_copy_has_the_weights_that_later_stages_start_from(tmp_path: Path) -> None:
    """A lesson is sampled at step 0 of the studied training, which needs its last adapter alone; a training whose end was
    not sampled is not finished."""
    here, there = tmp_path / "here", tmp_path / "there"
    (_, lesson, _), (_, finished, _), (_, unsampled, fights) = made(here, 1, step=0), made(here, 2), made(here, 3)
    Store(here).delete(fights)
    assert copy_study(here, there, weights=False).left_bytes == 500 + 1000
    assert not (Store(there).files(lesson) / "step-0000").exists()
    held = {ref: (Store(there).files(ref) / "step-0001").exists() for ref in (lesson, finished, unsampled)}
    assert held == {lesson: True, finished: False, unsampled: True}
    with session(Session(Store(here), Toolbox())):
        fought(finished, step=0)  # a lesson of another study
    copy_study(here, there, weights=False)
    assert (Store(there).files(finished) / "step-0001").exists()


def test_a_copy_grows_and_its_weights_follow(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    _, sword, _ = made(here)
    copy_study(here, there, weights=False)
    assert copy_study(here, there, weights=False).artifacts == 0
    made(here, n=2)
    assert copy_study(here, there, weights=False).artifacts == 3
    assert copy_study(here, there).artifacts == 2  # both swords, now with their weights
    assert not left_out(Store(there).path(sword)) and Store(there).has(sword)
    assert copy_study(here, there, weights=False).artifacts == 0  # a light copy takes nothing away
    assert (Store(there).files(sword) / "step-0001" / "adapter.bin").exists()


def test_another_making_of_an_artifact_stays(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    refs = made(here)
    made(there)
    tokens = [Store(there).manifest(ref).token for ref in refs]
    assert copy_study(here, there).others == 3
    assert [Store(there).manifest(ref).token for ref in refs] == tokens


def test_a_backup_holds_the_making_that_the_source_holds(tmp_path: Path) -> None:
    """Else what was made from the new one is stale when it comes back, and a training is paid for again."""
    here, kept, back = tmp_path / "here", tmp_path / "kept", tmp_path / "back"
    ores, sword, _ = made(here)
    copy_study(here, kept, renew=True)
    for ref in (ores, sword):
        Store(here).delete(ref)
    refs = made(here)
    assert copy_study(here, kept, renew=True).artifacts == 3
    copy_study(kept, back)
    assert all(Store(back).fresh(ref) for ref in refs)
    assert copy_study(here, kept, renew=True).artifacts == 0


def test_a_run_takes_along_what_it_needs(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    refs, others = made(here, n=1), made(here, n=2)
    note_planned(here, "demo-00000001", [refs[2]])
    base, mine, theirs = (
        entered(here, None, "base"),
        entered(here, str(refs[1]), "mine"),
        entered(here, str(others[1]), "x"),
    )
    copied = copy_study(here, there, "demo-00000001", weights=False)
    assert set(Store(there).refs()) == set(refs) and copied.shards == 2
    assert Ledger(there).read(base) is not None and Ledger(there).read(mine) is not None
    assert Ledger(there).read(theirs) is None
    assert (there / "runs" / "demo-00000001.jsonl").exists()
    assert copy_study(here, there, "demo-00000001", weights=False).shards == 0
