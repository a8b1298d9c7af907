"""Rollouts and adapters for other tools, each read back by the tool's own reader; and a push to a hub that is here."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from flows.exported import FORMATS, policies_of, write_hub
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.engines.rollout_files import read_rollouts
from tests import warm
from tests.servers import Quiet, serving

TOKEN = "hf_" + "s3cret" * 6


@pytest.fixture
def store(demo_store: Path) -> Store:
    return Store(demo_store)


@pytest.fixture
def report(store: Store) -> Ref:
    [found] = store.refs("report")
    return found


@pytest.mark.parametrize("form", ["jsonl", "inspect"])
def test_exported_rollouts_can_be_imported_again(form: str, store: Store, report: Ref, tmp_path: Path) -> None:
    if form == "inspect":
        pytest.importorskip("inspect_ai")
    files = FORMATS[form](store, report, tmp_path)
    policies = {policy.name: policy for policy in policies_of(store, report)}
    assert {path.stem for path in files} == {*policies} and len(files) == 4
    for path in files:
        rows, found = policies[path.stem].rows.to_pylist(), read_rollouts(path)[1]
        key = lambda one: (one.key, one.completion)  # noqa: E731
        expected = [(r["problem_id"], r["completion"], r["gold"], r["correct"], r["num_tokens"]) for r in rows]
        read = [(f.key, f.completion, f.gold, f.correct, f.num_tokens) for f in sorted(found, key=key)]
        assert read == sorted(expected, key=lambda row: row[:2])


def test_an_eval_log_has_the_accuracy_and_every_rollout_of_a_problem(store: Store, report: Ref, tmp_path: Path) -> None:
    inspect_log = pytest.importorskip("inspect_ai.log")
    [policy, *_] = policies_of(store, report)
    log = inspect_log.read_eval_log(str(FORMATS["inspect"](store, report, tmp_path)[0]))
    right = policy.rows["correct"].to_pylist()
    assert log.results.scores[0].metrics["accuracy"].value == pytest.approx(sum(right) / len(right))
    assert log.eval.config.epochs == 4 and len(log.samples) == len(right) == 64
    assert sum(sample.scores["varband"].value == "C" for sample in log.samples) == sum(right)
    assert {sample.epoch for sample in log.samples} == {1, 2, 3, 4}


def test_a_dataset_folder_is_loaded_by_datasets(store: Store, report: Ref, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    write_hub(store, report, tmp_path)
    name = policies_of(store, report)[0].name
    loaded = datasets.load_dataset(str(tmp_path), name, split="train", cache_dir=str(tmp_path / "cache"))
    written = pq.read_table(tmp_path / "data" / f"{name}.parquet")
    assert loaded["completion"][:] == written["completion"].to_pylist()


def test_an_adapter_folder_has_a_complete_card(store: Store, tmp_path: Path) -> None:
    from huggingface_hub import ModelCard

    training = store.refs("training")[0]
    write_hub(store, training, tmp_path)
    card: Any = ModelCard.load(tmp_path / "README.md")
    assert (card.data.base_model, card.data.library_name) == ("demo", "peft")
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {path.name for path in tmp_path.iterdir()}
    evaluated = [
        ref
        for ref in store.refs("rollouts")
        if (made := store.manifest(ref).recipe.arguments)["policy"]["adapter"] == str(training)  # type: ignore[index,call-overload]
        and made["policy"]["adapter_step"] == 4  # type: ignore[index,call-overload]
    ]
    rates = {round(sum(c := store.read(ref)["correct"].to_pylist()) / len(c), 4) for ref in evaluated}
    assert {result.metric_value for result in card.data.eval_results or ()} == rates and rates
    with pytest.raises(UserError, match="has no rollouts"):
        FORMATS["jsonl"](store, training, tmp_path)


@contextmanager
def receiving_hub() -> Iterator[tuple[str, dict[str, bytes], list[str]]]:
    """A hub that takes commits of files that are small enough to be sent within them: its address, its files by
    repository and path, and the tokens that it got."""
    files: dict[str, bytes] = {}
    tokens: list[str] = []

    class Handler(Quiet):
        def do_POST(self) -> None:
            body = self.read()
            tokens.append(self.headers.get("Authorization", ""))
            at = self.path.partition("?")[0]
            if at == "/api/repos/create":
                asked = json.loads(body)
                name = f"{asked.get('organization') or 'lab'}/{asked['name']}"
                url = f"http://{self.headers['Host']}/{asked.get('type', 'model')}s/{name}"
                return self.answer(200, {"url": url, "name": name})
            if "/preupload/" in at:
                listed = [{"path": f["path"], "uploadMode": "regular"} for f in json.loads(body)["files"]]
                return self.answer(200, {"files": [one | {"shouldIgnore": False} for one in listed]})
            if "/commit/" not in at:  # such as the check of a card
                return self.answer(200, {"errors": [], "warnings": []})
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    files[f"{at.split('/commit/')[0]}/{line['value']['path']}"] = base64.b64decode(
                        line["value"]["content"]
                    )
            commit = {"commitUrl": f"http://{self.headers['Host']}/lab/x/commit/{'1' * 40}", "commitOid": "1" * 40}
            self.answer(200, commit | {"success": True})

        def do_GET(self) -> None:
            self.answer(200, {"id": "lab/rollouts", "sha": "0" * 40, "siblings": []})

    with serving(Handler) as address:
        yield address, files, tokens


def test_push_sends_the_folder_and_keeps_the_token_to_itself(own_demo_store: Path, tmp_path: Path) -> None:
    training = str(Store(own_demo_store).refs("training")[0])
    with receiving_hub() as (address, files, tokens):
        shell = warm.SHELL | {
            "HF_ENDPOINT": address,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_XET": "1",
        }
        for words in (("demo", "lab/rollouts"), (training, "lab/adapter")):
            done = warm.run(
                [warm.VARBAND, "export", "push", *words, "--root", str(own_demo_store)], cwd=tmp_path, env=shell
            )
            assert done.returncode == 0, done.stderr
            assert TOKEN not in done.stdout + done.stderr
    assert {f"Bearer {TOKEN}"} == set(tokens)
    datasets, models = "/api/datasets/lab/rollouts", "/api/models/lab/adapter"
    assert b"configs:" in files[f"{datasets}/README.md"] and b"model-index" in files[f"{models}/README.md"]
    assert sum(name.startswith(f"{datasets}/data/") for name in files) == 4
    assert files[f"{models}/adapter_model.safetensors"]
    kept = [p for p in own_demo_store.rglob("*") if p.is_file() and TOKEN.encode() in p.read_bytes()]
    assert not kept
    refused = warm.run(
        [warm.VARBAND, "export", "push", "demo", "lab/rollouts", "--root", str(own_demo_store)], cwd=tmp_path, env=shell
    )
    assert refused.returncode == 2 and "hf auth login" in refused.stderr and TOKEN not in refused.stderr
