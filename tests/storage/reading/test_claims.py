"""Claims by planted figures, and those of a store."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flows.upkeep.store_audit import audit
from storage.artifacts.kinds import Bands
from storage.artifacts.manifest import Recipe
from storage.artifacts.provenance import provenance
from storage.artifacts.store import Payload, Store
from storage.errors import UserError
from storage.reading.claims import CLAIMS, Claim, check, needs, read_claims, recomputed
from storage.sql import named

CLAIM = "[[claim]]\nid='a'\ntext='t'\nwhere='w'\nprinted=1\n"


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
        ("x = 1", "claim: Field required"),
        ("[[claim", "not TOML"),
        ("[[claim]]\nid = 'a'", "claim.0.text: Field required"),
        (f"{CLAIM}query='nothing'", "no query 'nothing'"),
        (f"{CLAIM}cannot='c'\ncolour=1", "claim.0.colour: Extra inputs"),
        (f"{CLAIM}cannot='c'\n" * 2, "two claims are called a"),
        (f"{CLAIM}cannot='c'\nfile='b'", "no sha256 of 'b'"),
        (f"{CLAIM}cannot='c'".replace("1", "'many'"), "printed: Input should be a valid number"),
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
