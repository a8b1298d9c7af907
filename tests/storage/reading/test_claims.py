"""Claims by planted figures, and those of a store."""

import tomllib
from pathlib import Path

import pyarrow as pa
import pytest

from flows.upkeep.store_audit import audit
from storage.artifacts.manifest import Recipe, provenance
from storage.artifacts.schemas import Bands
from storage.artifacts.store import Payload, Store
from storage.errors import UserError
from storage.estimates import band
from storage.reading.claims import CLAIMS, needs, read_claims, recomputed
from storage.sql import named

CLAIM = "[[claim]]\nid='a'\ntext='t'\nwhere='w'\nprinted=1\n"


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


def test_a_bad_claims_file_is_one_sentence(tmp_path: Path) -> None:
    for text, said in (
        ("x = 1", "claim: Field required"),
        (f"{CLAIM}query='nothing'", "no query 'nothing'"),
        (f"{CLAIM}cannot='c'\n" * 2, "two claims are called a"),
    ):
        (tmp_path / "claims.toml").write_text(text)
        with pytest.raises(UserError, match=said):
            read_claims(tmp_path / "claims.toml")


def written(
    store: Store, fingerprint: str, num_correct: list[int], sha256: str | None, inputs: dict[str, list[str]]
) -> Bands:
    """Bands of groups of 8 of panel, imported from a file of this digest."""
    rows = [
        {"problem_id": str(i), "source": "s", "arm": "panel", "group_size": 8, "num_correct": c, "band": band(c, 8)}
        for i, c in enumerate(num_correct)
    ]
    file: dict[str, object] = {"file": {"is": "PublishedFile", "path": "reports/p.jsonl", "sha256": sha256}}
    recipe = Recipe(stage="import_bands", version=1, arguments=file if sha256 else {}, inputs=inputs)
    ref = Bands.of(fingerprint * 16)
    store.write(ref, Payload(pa.Table.from_pylist(rows, schema=Bands.schema)), recipe, provenance(0.0))
    return ref


def claimed(name: str, printed: str, query: str, parameters: str) -> str:
    given = f"printed={printed}\nquery='{query}'\nparameters={{{parameters}}}\n"
    return f"[[claim]]\nid='{name}'\ntext='t'\nwhere='w'\n{given}"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    made.prepare()
    return made


def test_audit_of_a_store_recomputes_claims_and_says_what_is_missing(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no artifact to audit"):
        audit(store)
    written(store, "0", [0, 3], None, {})
    (tmp_path / "claims.toml").write_text(
        claimed("one", "1", "claim_band_count", "arm='panel', band='variance'")
        + claimed("two", "7", "claim_band_count", "arm='panel', band='all_zero'")
        + claimed("gone", "2", "claim_pool_count", "pool='a', source='all'")
        + claimed("near", "1.4", "claim_band_count", "arm='panel', band='variance'").replace(
            "1.4", "1.4\ntolerance=0.5"
        )
    )
    result = audit(store, tmp_path / "claims.toml")
    assert [(c["id"], c["status"], c["off_by"]) for c in result["claims"]] == [
        ("one", "holds", 0.0),
        ("two", "off", -6.0),
        ("gone", "unknown", None),
        ("near", "holds", pytest.approx(-0.4)),
    ]
    assert result["claims"][2]["reason"] == "the store has no training_pools"


def test_claims_are_of_an_import_and_not_of_whatever_looks_like_it(store: Store, tmp_path: Path) -> None:
    """A store with two editions of a file and a study of one's own: only what was made from the claims' files counts."""
    claims = tmp_path / "claims.toml"
    claim = claimed("one", "'2'", "claim_band_count", "arm='panel', band='variance'")
    claims.write_text(f"[import]\n'reports/p.jsonl' = 'aa'\n{claim}")
    other = written(store, "1", [3, 3, 3, 3], "bb", {})
    written(store, "2", [5, 0], None, {})
    (found,) = recomputed(store, read_claims(claims))
    assert (found.status, found.reason) == ("unknown", "the store has no bands of the claims' files")
    mine = written(store, "0", [0, 3, 5], "aa", {})
    written(store, "3", [1, 1, 1], None, {"bands": [str(mine), str(other)]})  # of both editions: of neither
    (found,) = recomputed(store, read_claims(claims))
    assert (found.status, found.found) == ("holds", 2.0)
