"""Trackers: what a run sends is read back with each tracker's own reader, and a bad tracker stops nothing."""

import json
import os
import struct
import sys
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flows.running import tracking
from flows.running.tracking import lines_of, tracked
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import Notice, UserError
from storage.records.runs import Amounts
from tasks.engines.trackers import Line, TrackerRun
from tasks.stage import Progress
from tests import warm
from tests.mini import command, environment

TRAINING = Ref("training", "0" * 16)
EXAMPLES = [{"problem_id": "p1", "completion": "<answer>4</answer>", "verdict": "correct"}]


def step(n: int) -> Progress:
    values = {"reward_mean": n / 10, "tokens_per_s": 50.0}
    title = "train panel seed 0"
    return Progress("advanced", title, TRAINING, n, 3, "steps", values=values, examples=EXAMPLES)


def sent(name: str, root: Path, *steps: int) -> None:
    """Send steps of one training, as one attempt of a run. Each attempt may have another limit."""
    config = {"model": "small", "objectives.A++.kl_beta": 0.02, "budget.usd": 1.0 + len(steps)}
    of = TrackerRun("lab", "lab-1234-abc", root / "tracking", config)
    with tracked([name], of, Store(root), partial(Amounts, tokens=7.0)) as listener:
        for n in steps:
            listener(step(n))


def events_of(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # pyright: ignore[reportMissingImports]

    read = EventAccumulator(str(folder))
    read.Reload()
    return read


def text_of(events: Any, name: str) -> str:
    return events.Tensors(f"{name}/text_summary")[0].tensor_proto.string_val[0].decode()


def read_tensorboard(root: Path) -> tuple[list[float], str]:
    [folder] = (root / "tracking" / "tensorboard").glob("*/*")
    assert folder.name == "panel-seed-0"
    read = events_of(folder)
    text, config = text_of(read, "completions/0"), text_of(read, "config")
    assert "objectives.A++.kl_beta = 0.02" in config and "budget.usd = 3.0" in config
    return [event.value for event in read.Scalars("train/reward_mean")], text


def read_mlflow(root: Path) -> tuple[list[float], str]:
    from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

    client = MlflowClient(f"sqlite:///{root / 'tracking' / 'mlflow.db'}")
    experiment: Any = client.get_experiment_by_name("lab")
    [run] = client.search_runs([experiment.experiment_id])
    table = Path(run.info.artifact_uri.removeprefix("file://")) / "completions.json"
    assert run.data.params == {"model": "small", "objectives.A__.kl_beta": "0.02", "budget.usd": "3.0"}
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "train/reward_mean")
    return [m.value for m in sorted(history, key=lambda m: m.step)], table.read_text()


def read_trackio(root: Path) -> tuple[list[float], str]:
    from trackio.sqlite_storage import SQLiteStorage  # pyright: ignore[reportMissingImports]

    logs = SQLiteStorage.get_logs("lab", "lab-1234-abc-panel-seed-0")
    config = SQLiteStorage.get_run_config("lab", "lab-1234-abc-panel-seed-0") or {}
    assert config["objectives.A++.kl_beta"] == 0.02 and config["budget.usd"] == 3.0
    return [log["train/reward_mean"] for log in logs], json.dumps(logs)


def leveldb_records(log: bytes) -> Iterator[bytes]:
    """Yield the records of a LevelDB log after W&B's header of 7 bytes: blocks of 32 KiB with pieces of (checksum,
    length, type), where type 1 is a whole record, and 2, 3, 4 are its first, middle and last pieces."""
    at, whole = 7, b""
    while at + 7 <= len(log):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack("<HB", log[at + 4 : at + 7])
        whole += log[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


def read_wandb(root: Path) -> tuple[list[float], str]:
    """Both attempts are one run for `wandb sync`: they have one id."""
    from wandb.proto import wandb_internal_pb2  # pyright: ignore[reportMissingImports]

    values, ids, config = [], set(), dict[str, str]()
    for path in sorted((root / "tracking").rglob("*.wandb")):
        for data in leveldb_records(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            values += [json.loads(items[name]) for name in items if name == "train/reward_mean"]
            ids |= {record.run.run_id} - {""}
            config |= {item.key: item.value_json for item in record.run.config.update}
    assert (
        ids == {"lab-1234-abc-panel-seed-0"} and config["objectives.A++.kl_beta"] == "0.02" and "budget.usd" in config
    )
    return values, "".join(path.read_text() for path in (root / "tracking").rglob("*.table.json"))


READERS = {"tensorboard": read_tensorboard, "mlflow": read_mlflow, "trackio": read_trackio, "wandb": read_wandb}


@pytest.mark.parametrize("name", READERS)
def test_two_attempts_are_one_run_of_the_tracker_with_each_step_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(name)
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    if name == "trackio":  # its reader takes the folder when it is imported
        for module in [m for m in sys.modules if m.partition(".")[0] == "trackio"]:
            monkeypatch.delitem(sys.modules, module)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)
        sent(name, tmp_path, 1, 2)
        sent(name, tmp_path, 2, 3)
    values, completions = READERS[name](tmp_path)
    assert values == pytest.approx([0.1, 0.2, 0.3])
    assert "<answer>4" in completions.replace("\\u003c", "<")


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("raise OSError('no net')", "no net"),
        ("time.sleep(99)", "within 1 s"),
        ("os.kill(os.getpid(), 9)", "was ended by signal 9"),
    ],
)
def test_a_tracker_that_fails_or_hangs_stops_nothing(
    does: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wandb.py").write_text(f"import os, time\n{does}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tracking, "GRACE_SECONDS", 1.0 if "sleep" in does else 60.0)
    began = time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sent("wandb", tmp_path, *range(1, 4))
    said = [str(one.message) for one in caught if isinstance(one.message, Notice)]
    said += [line for line in capfd.readouterr().err.splitlines() if line.startswith("varband: ")]
    assert len(said) == 1 and words in said[0], said
    assert time.monotonic() - began < 60


def test_a_missing_tracker_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setattr("tasks.engines.trackers.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"varband\[wandb\]"):
        sent("wandb", tmp_path, 1)


def test_a_stored_study_has_steps_evaluations_bands_and_a_summary(demo_store: Path) -> None:
    store, lines = Store(demo_store), list[Line]()
    for kind, title in (("training", "train {arm} seed 0"), ("bands", ""), ("report", "")):
        for ref in store.refs(kind):
            lines += lines_of(store, ref, title.format(arm=kind))
    assert [line.step for line in lines if line.run == "training seed 0"] == [1, 2, 3, 4] * 2
    bands = {name: n for line in lines for name, n in line.values.items() if name.startswith("bands/panel/")}
    assert sum(bands.values()) == 64
    assert any("summary/panel/seed 0/gain" in line.values for line in lines)
    ref = next(
        r
        for r in store.refs("rollouts")
        if (given := store.manifest(r).recipe.arguments)["split"] == "heldout" and given["group_size"] == 4
    )
    [line] = lines_of(store, ref, "evaluate panel at step 4 (curve and final, 4 each)")
    correct = store.read(ref)["correct"].to_pylist()
    assert line.values["heldout/accuracy"] == pytest.approx(sum(correct) / len(correct))
    assert line.values["heldout/accuracy_low"] < line.values["heldout/accuracy"] < line.values["heldout/accuracy_high"]
    assert len(line.completions) == tracking.EXAMPLES
    [other] = lines_of(store, ref, "evaluate by best_of_k panel at step 4 (objectives, 4 each)")
    assert "heldout_objectives/accuracy" in other.values and other.run.endswith("by best_of_k")


def test_a_step_that_a_crash_kept_from_the_tracker_is_sent_with_the_training(demo_store: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    store = Store(demo_store)
    ref, title = store.refs("training")[0], "train panel seed 0"
    with tracked(["tensorboard"], TrackerRun("lab", "g", tmp_path), store, Amounts) as listener:
        listener(Progress("advanced", title, ref, 1, 4, "steps", values={"reward_mean": 0.5}))
        listener(Progress("made", title, ref))
    scalars = events_of(tmp_path / "tensorboard" / "g" / "panel-seed-0").Scalars("train/reward_mean")
    assert [scalar.step for scalar in scalars] == [1, 2, 3, 4]


def test_a_finished_study_is_sent_and_its_names_do_not_change(own_demo_store: Path) -> None:
    """The planned refs with a tracker are those without. Sent twice, it is one run of the tracker."""
    pytest.importorskip("tensorboard")
    plans = [
        warm.run(command(own_demo_store, *more, verb="plan"), cwd=own_demo_store, env=environment())
        for more in ((), ("--set", "tracking=tensorboard"))
    ]
    assert plans[0].stdout == plans[1].stdout and plans[0].returncode == 0
    words = [warm.VARBAND, "export", "track", "demo", "--track", "tensorboard", "--root", str(own_demo_store)]
    shell = environment() | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    printed, files = [], []
    for _ in range(2):
        done = warm.run(words, cwd=own_demo_store, env=shell)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
        files.append(sorted((own_demo_store / "tracking").rglob("events*")))
    assert {path.parent.name for path in files[0]} == {"panel-seed-0", "thinking-seed-0", "study"}
    assert printed[0] == printed[1] and files[0] == files[1]
    config = text_of(events_of(files[0][0].parent), "config")
    assert "training.steps = 4" in config and "model = " in config
