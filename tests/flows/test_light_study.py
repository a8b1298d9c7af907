"""A study in two places: sampled and trained here, embedded and reported from a light copy of it there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.study.models import SHIPPED
from storage.artifacts.store import Store
from tasks.engines.model_files import model_digest
from tests import warm
from tests.mini import ended, finish

pytestmark = pytest.mark.slow

DIGEST = model_digest(SHIPPED["demo"])


def said(root: Path, *more: str) -> tuple[int, str]:
    done = ended(root, *more)
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(with the weights, the light copy), both without embeddings, and the first without their encoder."""
    here, there = tmp_path_factory.mktemp("study") / "here", tmp_path_factory.mktemp("copy") / "there"
    code, words = said(here, "--without", "embeddings", "--set", "encoder.name=elsewhere")
    assert code == 75 and "is left for another machine" in words, words
    export = [warm.VARBAND, "export", "study", str(there), "--without", "weights", "--root", str(here), "--json"]
    copied = json.loads(warm.run(export).stdout)
    assert copied["left_bytes"] > 0 and copied["others"] == 0
    return here, there


def test_embeddings_and_what_follows_are_left(places: tuple[Path, Path]) -> None:
    kinds = {ref.kind for ref in Store(places[0]).refs()}
    assert {"rollouts", "bands", "training", "passk"} <= kinds
    assert not {"calibrations", "embeddings", "diversity", "diversity_comparison", "report"} & kinds


def test_the_copy_ends_with_the_report(places: tuple[Path, Path]) -> None:
    done = finish(places[1], "--model", f"sha256:{DIGEST}")
    made = {ref.kind for ref in Store(places[1]).refs()} - {ref.kind for ref in Store(places[0]).refs()}
    assert {"embeddings", "report"} <= made and Path(done["html"]).exists()
    assert all(Store(places[1]).fresh(ref) for ref in Store(places[0]).refs())
