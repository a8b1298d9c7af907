"""What the audit finds by itself in the published study: every known fault, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from flows.upkeep.store_audit import audit
from storage.artifacts.store import Store

DISCREPANCIES = json.loads((Path(__file__).parents[1] / "golden" / "discrepancies.json").read_text())


def test_what_the_run_log_and_the_series_show(result: dict[str, Any]) -> None:
    found = {f["fact"].split(" (")[0]: f for f in result["audit"] if f["code"] in ("steps", "trend", "prose_count")}
    halted = found["GSM8K stopped at step 25 of 80"]
    assert "billing" in halted["fact"] and halted["fact"].endswith("went on from step 20 and executed 80")
    assert not any(fact.startswith("GSM8K was asked for") for fact in found), "its log has the metrics of step 80"
    assert "GSM8K, extended was asked for 160 steps and executed 128" in found
    assert "the log says that 352 of 500 problems were reached, and the file has 348 of them" in found
    quoted = [f["fact"] for f in result["audit"] if f["query"] == "lint_notes"]
    assert quoted and all(fact.startswith("the log ") for fact in quoted)  # what it says is no fact of ours
    trend = next(f for f in result["audit"] if f["code"] == "trend")
    assert "by +0.30 from step 0 to step 90, by +0.02 to step 80" in trend["fact"]
    equal = next(f for f in result["audit"] if f["code"] == "equal_tokens")
    assert equal["value"] < 0
    assert "panel solves 0.55 of AIME 2024+2025, 20 with 16 rollouts" in equal["fact"]


def test_the_audit_knows_every_known_discrepancy(published: Path, store: Store, result: dict[str, Any]) -> None:
    """What is wrong in the published files is off or found; what nothing published can decide says so."""
    audited = audit(store)
    status = {c["id"]: c["status"] for c in audited["claims"]}
    missed = []
    for known in DISCREPANCIES:
        if "claim" in known:
            seen = status[known["claim"]] == ("unknown" if known.get("cannot") else "off")
        else:
            seen = any(f["code"] == known["finding"] and known["says"] in f["fact"] for f in audited["findings"])
        missed += [] if seen else [known["what"]]
    assert missed == []
    decided = [known for known in DISCREPANCIES if not known.get("cannot")]
    assert (len(decided), len(DISCREPANCIES)) == (43, 45)
    named = {known.get("claim") for known in DISCREPANCIES}
    assert {claim for claim, said in status.items() if said == "off"} <= named  # no figure is off that is not known
    assert {f["code"] for f in audited["findings"]} == {k["finding"] for k in DISCREPANCIES if "finding" in k}


def test_findings_keep_what_the_rows_show_apart_from_what_may_follow(result: dict[str, Any]) -> None:
    assert all(f["fact"] and f["inference"] for f in result["audit"])
    facts, inferences = ([f[c] for f in result["audit"]] for c in ("fact", "inference"))
    assert not [t for t in inferences if "chosen after the fact" in t or "not left out at random" in t]
    assert not [t for t in facts if "at most" in t]


def test_the_reference_is_not_that_of_the_heldout_set(result: dict[str, Any]) -> None:
    held = {row["problem_id"] for row in result["pools"] if row["pool"] == "heldout_eval"}
    shares = {row["problem_id"]: row["num_correct"] / row["group_size"] for row in result["bands"][1]}
    assert fmean(shares[problem] for problem in held) == pytest.approx(0.48375)
    assert fmean(shares.values()) == pytest.approx(0.5825, abs=1e-4)
