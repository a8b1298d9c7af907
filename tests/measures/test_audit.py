"""Lints by planted faults, claims by planted figures."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flows.upkeep.store_audit import audit
from storage.artifacts.fingerprint import canonical
from storage.artifacts.kinds import Bands
from storage.artifacts.manifest import Recipe
from storage.artifacts.provenance import provenance
from storage.artifacts.store import Payload, Store
from storage.errors import UserError
from storage.reading.claims import CLAIMS, Claim, check, needs, read_claims, recomputed
from storage.sql import named
from tasks.designs import TABLES, from_training, recipe_row, rows_as
from tasks.domain.grpo.types import LearnerConfig
from tasks.domain.policies import BaseModel, Policy
from tasks.measures.lints import findings_of, lesson_leak_rows, lints

START = Policy(arm="panel", model=BaseModel(sha256="m"))
LEARNER = LearnerConfig(steps=40, groups_per_step=1, group_size=8, learning_rate=0.001, lora_rank=16, lora_alpha=16)


def design(**fields: Any) -> dict[str, Any]:
    return {
        "run": fields.get("arm", "x") + fields.get("role", ""),
        "role": "heldout",
        "family": "f",
        "arm": "panel",
        "model": "m",
        "policy": "m",
        "problems": "pool",
        "num_problems": 10,
        "group_size": 8,
        "max_tokens": 128,
        "steps": None,
        "place": "here",
    } | fields


def codes(*designs: dict[str, Any], **tables: list[dict[str, Any]]) -> list[str]:
    made = {name: rows_as(name, rows) for name, rows in tables.items()}
    return sorted({r["code"] for r in findings_of({"designs": rows_as("designs", designs)} | made).to_pylist()})


def test_a_sound_design_has_no_finding() -> None:
    screening = design(role="screening", family="screening")
    training = design(role="training", family="training", steps=40, last_evaluated=40, seeds=3)
    assert codes(design(), design(arm="thinking"), screening, training) == []


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"max_tokens": 64}, "max_tokens"),
        ({"group_size": 4}, "unequal_n"),
        ({"model": "other"}, "different_models"),
        ({"problems": "elsewhere"}, "reference"),
        ({"grader": "2"}, "grader_version"),
        ({"truncated": 0.4}, "truncation"),
        ({"planned_problems": 20}, "partial_run"),
    ],
)
def test_a_fault_between_two_arms_is_found(fields: dict[str, Any], code: str) -> None:
    assert code in codes(design(grader="1"), design(arm="thinking", grader="1") | fields)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"policy": "m+a@3"}, "screening_policy"),
        ({"group_size": 16}, "group_size"),
        ({"max_tokens": 64}, "max_tokens"),
        ({"last_evaluated": 30}, "last_step"),
        ({"last_evaluated": None}, "last_step"),
        ({"seeds": 1}, "single_seed"),
    ],
)
def test_a_fault_between_screening_and_training_is_found(fields: dict[str, Any], code: str) -> None:
    training = design(role="training", family="training", steps=40, last_evaluated=40, seeds=3)
    assert codes(design(role="screening", family="screening"), training | fields) == [code]


def test_arms_that_were_trained_with_other_settings_are_found() -> None:
    """The seed is no such setting; the sentence names what differs and nothing else."""

    def trained(arm: str, learner: LearnerConfig) -> dict[str, Any]:
        return recipe_row(arm, {"start": canonical(replace(START, arm=arm)), "learner": canonical(learner)})

    panel, same = trained("panel", LEARNER), trained("thinking", replace(LEARNER, seed=1))
    other = trained("thinking", replace(LEARNER, lora_rank=8))
    assert codes(recipes=[panel, same]) == []
    found = findings_of({"recipes": rows_as("recipes", [panel, other])}).to_pylist()
    assert [(r["code"], r["fact"]) for r in found] == [
        ("hyperparameters", "panel was trained with lora_rank=16 and thinking with lora_rank=8")
    ]


@pytest.mark.parametrize(
    ("version", "drawn", "found"),
    [
        (1, {"temperature": {"float": "0.7"}, "top_p": {"float": "1.0"}}, ["behaviour"]),
        (2, {"temperature": {"float": "0.7"}, "top_p": {"float": "1.0"}}, []),
        (1, {"temperature": {"float": "1.0"}, "top_p": {"float": "1.0"}}, []),
        (1, {}, []),
        (2, {"top_p": {"float": "0.9"}}, ["behaviour"]),
    ],
)
def test_a_stored_training_whose_learner_read_another_distribution_is_found(
    version: int, drawn: dict[str, Any], found: list[str]
) -> None:
    """The first version of the stage read every rollout at temperature 1."""
    arguments: dict[str, object] = {
        "start": canonical(START),
        "learner": canonical(LEARNER),
        "rollouts": drawn | {"max_tokens": 128},
    }
    recipe = Recipe(stage="train_adapter", version=version, arguments=arguments, inputs={})
    assert codes(from_training("here", recipe, "pool", 3, 40)) == found


def test_a_lesson_that_holds_a_held_out_problem_is_found_and_said_to_be_harmless_where_it_was_left_out() -> None:
    text = "A rectangular box has edges of length three, four and five and is cut by one plane."
    held = pa.table({"problem_id": ["h"], "source_id": ["OB_1"], "problem": [text]})
    lesson = pa.table({"problem_id": ["a", "b"], "source_id": ["M_1", "M_2"], "problem": [text, "1 + 1 = ?"]})
    for split, matter in (("train", "is no test"), ("near_heldout", "no harm")):
        splits = pa.table({"problem_id": ["a", "b"], "split": [split, "train"]})
        rows = lesson_leak_rows(held, lesson, splits, "lesson")
        (found,) = findings_of({"leaks": rows_as("leaks", rows)}).to_pylist()
        assert found["code"] == "near_duplicate" and "OB_1 is held out and M_1" in found["fact"]
        assert matter in found["inference"] and found["place"] == "lesson"


def test_coverage_leaks_and_p_values() -> None:
    leak = {"source_id": "a", "other_source_id": "b", "similarity": 0.98, "kind": "near", "place": "pool"}
    seen = {"arm": "thinking", "problems": "p", "window": "whole", "coverage": 0.04, "basis": "measured", "place": "d"}
    normal = {
        "test": "t",
        "t": 5.91188971789758,
        "n": 50,
        "p_printed": 3.382e-09,
        "p_t": 3.2e-07,
        "p_normal": 3.382e-09,
    }
    students = normal | {"p_printed": 3.2e-07}
    assert codes(leaks=[leak], coverage=[seen], tests=[normal]) == ["encoder_coverage", "near_duplicate", "normal_p"]
    assert codes(tests=[students]) == []


def test_every_lint_reads_only_declared_tables() -> None:
    assert len(lints()) >= 15
    assert findings_of({}).num_rows == 0
    assert set(TABLES) >= {"designs", "tests", "leaks"}


def answer(value: float | None) -> Any:
    return lambda name, parameters: value


@pytest.mark.parametrize(("value", "status"), [(382.0, "holds"), (382.4, "holds"), (383.0, "off"), (None, "unknown")])
def test_a_claim_holds_within_its_tolerance(value: float | None, status: str) -> None:
    claim = Claim(id="x", text="382", where="w", printed=382, query="claim_band_count", tolerance=0.5)
    assert check(claim, {"bands"}, answer(value)).status == status


def test_a_claim_of_a_bound_and_one_without_its_kind() -> None:
    claim = Claim(id="p", text="p < 1e-8", where="w", printed=1e-8, query="claim_diversity_p", below=True)
    assert check(claim, {"diversity_comparison"}, answer(3e-7)).status == "off"
    assert check(claim, {"diversity_comparison"}, answer(3e-9)).status == "holds"
    found = check(claim, {"bands"}, answer(1.0))
    assert (found.status, found.reason) == ("unknown", "the store has no diversity_comparison")


def test_the_projects_claims_are_well_formed() -> None:
    read = read_claims(CLAIMS)
    assert len(read.claims) > 80
    assert all(needs(c.query) for c in read.claims if c.query)
    entries = tomllib.loads(CLAIMS.read_text())["claim"]
    assert all(
        isinstance(e["printed"], str) and "tolerance" not in e for e in entries
    )  # the digits decide, nothing else
    takes_a_file = {c.id for c in read.claims if c.query and "$file" in named(c.query)}
    assert takes_a_file == {c.id for c in read.claims if c.file}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "has no"),
        ("[[claim]]\nid = 'a'", "claim a: missing"),
        ("[[claim", "not TOML"),
        ("[[claim]]\nid='a'\ntext='t'\nwhere='w'\nprinted=1\nquery='nothing'", "no query 'nothing'"),
        (
            "[[claim]]\nid='a'\ntext='t'\nwhere='w'\nprinted=1\ncannot='c'\ncolour=1",
            "unexpected keyword argument 'colour'",
        ),
        ("[[claim]]\nid='a'\ntext='t'\nwhere='w'\nprinted=1\ncannot='c'\n" * 2, "two claims are called a"),
        ("[[claim]]\nid='a'\ntext='t'\nwhere='w'\nprinted='many'\ncannot='c'", "printed is a number"),
        ("[[claim]]\nid='a'\ntext='t'\nwhere='w'\nprinted='1'\ncannot='c'\nfile='b'", "no sha256 of 'b'"),
    ],
)
def test_a_bad_claims_file_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "claims.toml").write_text(text)
    with pytest.raises(UserError, match=said):
        read_claims(tmp_path / "claims.toml")


def test_audit_of_a_store_recomputes_claims_and_says_what_is_missing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    with pytest.raises(UserError, match="no artifact to audit"):
        audit(store)
    rows = pa.table(
        {
            "problem_id": ["a", "b"],
            "source": ["s", "s"],
            "arm": ["panel"] * 2,
            "group_size": [8, 8],
            "num_correct": [0, 3],
            "band": ["all_zero", "variance"],
        }
    )
    recipe = Recipe(stage="import_bands", version=1, arguments={}, inputs={})
    store.write(
        Bands.of("0" * 16), Payload(rows.select(Bands.schema.names).cast(Bands.schema)), recipe, provenance(0.0)
    )
    (tmp_path / "claims.toml").write_text(
        "[[claim]]\nid='one'\ntext='1'\nwhere='w'\nprinted=1\nquery='claim_band_count'\n"
        "parameters={arm='panel', band='variance'}\n"
        "[[claim]]\nid='two'\ntext='7'\nwhere='w'\nprinted=7\nquery='claim_band_count'\n"
        "parameters={arm='panel', band='all_zero'}\n"
        "[[claim]]\nid='gone'\ntext='2'\nwhere='w'\nprinted=2\nquery='claim_pool_count'\n"
        "parameters={pool='a', source='all'}\n"
    )
    result = audit(store, tmp_path / "claims.toml")
    assert [(c["id"], c["status"], c["off_by"]) for c in result["claims"]] == [
        ("one", "holds", 0.0),
        ("two", "off", -6.0),
        ("gone", "unknown", None),
    ]
    assert result["claims"][2]["reason"] == "the store has no training_pools"


def test_claims_are_of_an_import_and_not_of_whatever_looks_like_it(tmp_path: Path) -> None:
    """A store with two editions of a file and a study of one's own: only what was made from the claims' files counts."""
    store = Store(tmp_path)
    store.prepare()

    def written(fingerprint: str, num_correct: list[int], sha256: str | None, inputs: dict[str, list[str]]) -> Bands:
        bands = ["variance" if 0 < c < 8 else "all_zero" for c in num_correct]
        rows = [
            {"problem_id": str(i), "source": "s", "arm": "panel", "group_size": 8, "num_correct": c, "band": b}
            for i, (c, b) in enumerate(zip(num_correct, bands, strict=True))
        ]
        file: dict[str, object] = (
            {} if sha256 is None else {"file": {"is": "PublishedFile", "path": "reports/p.jsonl", "sha256": sha256}}
        )
        recipe = Recipe(stage="import_bands", version=1, arguments=file, inputs=inputs)
        ref = Bands.of(fingerprint * 16)
        store.write(ref, Payload(pa.Table.from_pylist(rows, schema=Bands.schema)), recipe, provenance(0.0))
        return ref

    claims = tmp_path / "claims.toml"
    text = (
        "[import]\n'reports/p.jsonl' = 'aa'\n[[claim]]\nid='one'\ntext='2'\nwhere='w'\nprinted='2'\n"
        "query='claim_band_count'\nparameters={arm='panel', band='variance'}\n"
    )
    claims.write_text(text)
    other = written("1", [3, 3, 3, 3], "bb", {})
    written("2", [5, 0], None, {})
    (found,) = recomputed(store, read_claims(claims))
    assert (found.status, found.reason) == ("unknown", "the store has no bands of the claims' files")
    mine = written("0", [0, 3, 5], "aa", {})
    written("3", [1, 1, 1], None, {"bands": [str(mine), str(other)]})  # of both editions: of neither
    (found,) = recomputed(store, read_claims(claims))
    assert (found.status, found.found) == ("holds", 2.0)
