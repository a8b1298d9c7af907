"""What objectives share is paid once: exact sums of tokens over whole runs of the small study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from storage.ledger import Ledger
from storage.records.spending import charges
from tests import mini, warm

pytestmark = pytest.mark.slow

#: Tokens of prompt and completion by (weights and scaffold, sampling, problem, rollout).
Paid = dict[tuple[str, str, int], int]


def run(root: Path, objectives: str) -> dict[str, Any]:
    small = ("--set", f"objectives={objectives}", "--set", "objective_group_size=4", "--seeds", "0")
    asked = ["demo/objectives" if word == "demo" else word for word in mini.command(root, *small)]
    done = warm.run(asked, cwd=root.parent, env=mini.environment(), engine=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def entered(root: Path) -> tuple[Paid, Paid]:
    """What the ledger holds: of the start, and of policies that were trained."""
    book, start, trained = Ledger(root), Paid(), Paid()
    for account, about in book.accounts():
        rows = book.read(account)
        assert rows is not None
        for row in rows.select(["problem_id", "rollout", "num_prompt_tokens", "num_tokens"]).to_pylist():
            key = f"{account}", row["problem_id"], row["rollout"]
            (trained if about["step"] else start)[key] = row["num_prompt_tokens"] + row["num_tokens"]
    return start, trained


def charged(root: Path) -> int:
    return sum(charges(root)["tokens"].to_pylist())


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Each objective in a store of its own."""
    roots = [tmp_path_factory.mktemp(name) / "store" for name in ("grpo", "maxrl")]
    for root, name in zip(roots, ("GRPO", "MaxRL"), strict=True):
        run(root, name)
    return roots


def test_a_further_objective_costs_what_its_own_policies_sampled(alone: list[Path]) -> None:
    """Both stores hold the start's rollouts (screening, evaluation at step 0, first step) and those of the study's own
    training; the rest is each objective's. In one store the two cost what both share once, and each one's own."""
    (start, first), (same_start, second) = map(entered, alone)
    assert start == same_start and start
    own = {key: tokens for key, tokens in second.items() if key not in first}
    assert own and len(own) < len(second), "the study's own training is in both"
    before = charged(alone[0])
    assert before == sum(start.values()) + sum(first.values()), "every rollout was charged once"
    assert run(alone[0], "GRPO,MaxRL")["made"]
    assert charged(alone[0]) - before == sum(own.values())
    assert entered(alone[0]) == (start, first | second)
