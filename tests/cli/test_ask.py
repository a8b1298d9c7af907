"""`varband ask` on real parts: one problem, its tree, with and without an adapter."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.ask import ask
from storage.artifacts.store import Store
from storage.errors import Parked, UserError
from storage.ledger import Ledger
from storage.records.spending import Journal

PROBLEM = "There are 6 boxes of 6 pens. 7 go. 3 come. How many pens in all?"


def asked(root: Path, *words: str, method: str = "revision:revisions=1") -> str:
    words = (PROBLEM, "--method", method, "--engine", "transformers", "--root", str(root), *words)
    return CliRunner().invoke(ask, words, catch_exceptions=False).stdout


def told(root: Path, *words: str, method: str = "revision:revisions=1") -> list[dict[str, Any]]:
    return json.loads(asked(root, *words, "--json", method=method))


def test_a_tree_is_printed_and_its_rounds_are_in_the_ledger(tmp_path: Path) -> None:
    first, second, last = asked(tmp_path).splitlines()
    assert first.startswith("#1 draw: ") and second.startswith("  #2 revise: ")
    spent = sum(int(re.findall(r"\((\d+) tokens\)", line)[-1]) for line in (first, second))
    assert last.startswith("answer: ") and last.endswith(f"(2 completions, {spent} tokens)")
    book = Ledger(tmp_path)
    entered = {f"{problem}/{index}" for account, _ in book.accounts() for problem, index in book.keys(account)}
    assert entered == {row["node"] for row in told(tmp_path)}


def test_what_was_asked_is_not_paid_for_again(tmp_path: Path) -> None:
    rows = told(tmp_path, method="first:width=2")
    longer = told(tmp_path, method="majority:width=3")
    assert [row["node"] for row in longer][:2] == [row["node"] for row in rows]
    book = Ledger(tmp_path)
    assert sum(len(book.keys(account)) for account, _ in book.accounts()) == 3


def test_a_policy_with_an_adapter_is_asked_and_one_without_says_so(demo_store: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(demo_store, root)
    training = next(ref for ref in Store(root).refs("training"))
    given = Store(root).read(training, ["arm"])["arm"][0].as_py()
    rows = told(root, "--arm", given, "--adapter", str(training))
    assert {row["adapter"] for row in rows} == {str(training)} and {row["step"] for row in rows} != {0}
    bare = told(root, "--arm", given)
    assert {row["adapter"] for row in bare} == {None} and {row["step"] for row in bare} == {0}
    assert {row["node"] for row in bare} & {row["node"] for row in rows}, "the problem itself is filed alike"
    with pytest.raises(UserError, match="--step says which adapter, so it needs --adapter"):
        asked(root, "--step", "3")


def test_what_a_question_costs_is_charged_and_the_month_of_the_team_stops_it(tmp_path: Path) -> None:
    rows = told(tmp_path)
    spent = sum(row["num_prompt_tokens"] + row["num_tokens"] for row in rows)
    assert Journal(tmp_path, "ask").spent().tokens == spent
    told(tmp_path)
    assert Journal(tmp_path, "ask").spent().tokens == spent, "what was asked before costs nothing"
    (tmp_path / "prices.toml").write_text(f"[month]\ntokens = {spent + 1}\n")
    with pytest.raises(Parked, match="the team's month"):
        asked(tmp_path, "--seed", "1")


WRONG: dict[tuple[str, ...], str] = {
    ("--method", "majorty"): r"unknown method 'majorty'; did you mean 'majority'",
    ("--method", "rewarded"): r"method rewarded is scored by a reward model: set reward to its folder",
    ("--tokens", "128"): r"tokens=128 is below one rollout, whose completion alone may take 128",
}


@pytest.mark.parametrize("words", WRONG, ids=["-".join(words) for words in WRONG])
def test_bad_input_is_one_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=WRONG[words]) as raised:
        asked(tmp_path, *words)
    assert "\n" not in str(raised.value)


def test_a_last_round_that_went_past_the_budget_is_said(tmp_path: Path) -> None:
    """A round is whole: what it spends is known once it is there."""
    method, least = "evolution:generations=1", 129
    last = asked(tmp_path, "--tokens", str(least), method=method).splitlines()[-1]
    assert re.search(rf"\(8 completions, \d+ tokens; the last round went past the budget of {least}\)$", last)
    assert "budget" not in asked(tmp_path, method=method).splitlines()[-1]
