"""The main job on real parts: the real engine, the shipped model, every stage, both arms."""

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from storage.ledger import Ledger
from tests.mini import SIDE_BY_SIDE, finish, hashes, report_text, start


@pytest.fixture(scope="module")
def root(own_demo_store: Path) -> Path:
    """The finished demo that the tests look at; those that change the store say so."""
    return own_demo_store


def from_a_shell(root: Path, *more: str) -> dict[str, Any]:
    process = start(root, *more)
    told, said = process.communicate()
    assert process.returncode == 0, said[-3000:]
    return json.loads(told)


def test_the_run_ends_with_a_table_and_a_report(root: Path) -> None:
    result = finish(root)
    assert [row["arm"] for row in result["summary"]] == ["panel", "thinking"]
    for row in result["summary"]:
        assert row["all_zero"] + row["variance"] + row["all_one"] == row["problems"] == 64
        assert 0 <= row["heldout_before"] <= 1 and 0 <= row["heldout_after"] <= 1
    page = Path(result["html"]).read_text()
    assert "<html" in page and "panel" in page
    assert Path(result["html"]).with_suffix(".md").exists()


def test_the_second_run_makes_nothing_and_is_quick(root: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = from_a_shell(root)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result["made"] == 0
    assert (
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime <= 5
    )  # of the processor: others use it too


@pytest.mark.slow
def test_two_cold_runs_agree_to_the_byte(tmp_path: Path, demo_store: Path) -> None:
    """One made its arms side by side, the other one after the other, with another seed of hashes."""
    result = from_a_shell(root := tmp_path / "store", *SIDE_BY_SIDE)
    assert result["made"] == result["stages"]
    assert hashes(demo_store) == hashes(root)
    assert report_text(demo_store) == report_text(root)


@pytest.mark.slow
def test_a_larger_group_samples_the_difference_only(root: Path) -> None:
    """Growing G from 4 to 8: the ledger gains 4 rollouts a problem in each arm's screening, and repeats none."""
    book = Ledger(root)
    screened = [account for account, about in book.accounts() if about["seed"] == 1 and about["step"] == 0]
    assert [len(book.keys(account)) for account in screened] == [64 * 4, 64 * 4]
    result = finish(
        root, "--set", "screening.group_size=8", "--set", "training.steps=1", "--set", "training.eval_every=1"
    )
    assert result["made"] > 0
    assert [len(book.keys(account)) for account in screened] == [64 * 8, 64 * 8]
    assert sum(book.duplicates(account) for account, _ in book.accounts()) == 0
