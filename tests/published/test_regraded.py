"""The grader of today over what is stored: the published study, whose counts stay, and a demo."""

import json
import shutil
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from cli.grade import regrade
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from tasks.domain.grading.grading import GRADER_VERSION
from tasks.engines.grading.graders import GradeItem, Graders

#: Case studies that ask for one value, and the value.
VALUES = {
    "a": "5",
    "b": "37/216",
    "c": "600",
    "d": r"\$36",
    "e": r"3 \text{ hours}",
    "f": r"0.5 \text{ hours}",
    "k": "4",
    "l": r"8 \text{ days}",
    "m": "841",
    "q": "13/27",
}


def told(*options: str) -> dict[str, Any]:
    return json.loads(CliRunner().invoke(regrade, [*options, "--json"], catch_exceptions=False).stdout)


def test_counts_without_texts_stay_as_they_were_printed(replayed: Path, tmp_path: Path) -> None:
    store = shutil.copytree(replayed, tmp_path / "store")
    before = sorted(map(str, Store(store).refs()))
    said = CliRunner().invoke(regrade, ["--root", str(store)], catch_exceptions=False).output
    assert said == "this store has no rollouts with their texts, so nothing can be graded again\n"
    assert told("--root", str(store))["stored"] == 0
    assert sorted(map(str, Store(store).refs())) == before


def test_case_studies_under_the_grader_of_today(published: Path) -> None:
    items = json.loads((published / "reports" / "case_study" / "transcripts.json").read_text())["items"]
    asked = [
        (item["id"], arm, item[arm]["raw"]) for item in items if item["id"] in VALUES for arm in ("panel", "thinking")
    ]
    with Graders() as graders:
        verdicts = graders.grade([GradeItem(arm, text, VALUES[name]) for name, arm, text in asked])
    refused = {
        (name, arm): (v.verdict, v.answer) for (name, arm, _), v in zip(asked, verdicts, strict=True) if not v.correct
    }
    assert refused == {
        ("f", "panel"): ("wrong", r"30 \text{ minutes}"),
        ("k", "panel"): ("wrong", "20"),
        ("d", "thinking"): ("no_answer", None),
    }


def test_a_demo_is_judged_again_without_sampling(demo_store: Path, tmp_path: Path) -> None:
    """An override of a pair that nobody wrote makes another version of the grader: every rollout is judged again."""
    store = shutil.copytree(demo_store, tmp_path / "store")
    assert told("--root", str(store))["artifacts"] == [], "judged by this grader already"
    (file := tmp_path / "overrides.jsonl").write_text(
        json.dumps({"answer": "-12345", "gold": "0", "verdict": "wrong", "reason": "nobody wrote it"})
    )
    found = told("--root", str(store), "--overrides", str(file))
    assert found["grader_version"].startswith(f"{GRADER_VERSION}+")
    judged = sum(entry["rows"] for entry in found["artifacts"]) + found["ledger"]["rows"]
    assert judged == found["stored"] > 0
    assert found["changes"] == []
    for entry in found["artifacts"]:
        now = Store(store).read(Ref.parse(entry["regraded"]), ["grader_version"])
        assert set(now["grader_version"].to_pylist()) == {found["grader_version"]}
