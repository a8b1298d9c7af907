"""`varband ask` on real parts: the demo's model, an adapter that the demo trained, the grader, a search's tree."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.ask import ask as command
from storage.artifacts.store import Store
from storage.errors import Parked, UserError
from storage.ledger import Ledger
from storage.records.copies import copy_study
from storage.records.spending import Journal
from tasks.domain.arms import ARMS
from tasks.engines.hardware import Hardware
from tasks.engines.protocols import Decoding, Request
from tasks.engines.sampling.sampler import PIECE_TOKENS, stream
from tasks.engines.toolbox import Toolbox
from tests.warm import REPO

PROBLEM = "There are 6 boxes of 6 pens. 7 go. 3 come. How many pens in all?"
REVISED = ("--method", "revision:revisions=1")


def ask(*words: str, typed: str | None = None, engine: str = "transformers") -> Result:
    return CliRunner().invoke(command, [*words, "--engine", engine], input=typed, catch_exceptions=False)


def told(*words: str, typed: str | None = None, engine: str = "transformers") -> list[dict[str, Any]]:
    lines = ask("--temperature", "0", *words, "--json", typed=typed, engine=engine).stdout.splitlines()
    return [json.loads(line) for line in lines]


def searched(root: Path, *words: str) -> list[dict[str, Any]]:
    [rows] = told(PROBLEM, *words, "--root", str(root), "--temperature", "1")
    return rows  # type: ignore[return-value]


def test_pieces_are_the_completion() -> None:
    """Without chance, what streams is what the engine would have handed over whole."""
    places = {"demo": REPO / "models" / "demo"}
    generator = Toolbox(Hardware(engine="transformers", max_model_len=512), places).generator("demo", 0)
    scaffold = ARMS["panel"].scaffold
    ids = generator.encode(scaffold.prompt(PROBLEM), chat=scaffold.chat, enable_thinking=scaffold.enable_thinking)
    decoding = Decoding(max_tokens=100, temperature=0.0, stop=scaffold.stop)
    whole = next(iter(generator.generate([Request(0, ids, 1, decoding)], None)))
    pieces = list(stream(generator, ids, decoding, 1, None))
    texts = [text for text, ended in pieces if ended is None]
    assert "".join(texts) == whole.text and pieces[-1] == ("", whole.finish)
    assert len(texts) >= len(whole.token_ids) // PIECE_TOKENS > 1
    assert list(stream(generator, ids, Decoding(max_tokens=5, temperature=0.0), 1, None))[-1] == ("", "length")


def test_the_debate_streams_then_the_answer_then_the_verdict() -> None:
    result = ask(PROBLEM, "--gold", "32", "--temperature", "0")
    debate, answer, verdict = result.stdout.splitlines()
    assert debate.startswith("<mutipersonaDebate>") and debate.endswith("</answer>")
    assert answer.removeprefix("answer: ") in debate
    right = answer == "answer: 32"
    assert verdict.startswith("correct: " if right else "wrong: ") and verdict.endswith("(gold 32)")
    assert "\x1b" not in result.stdout  # no colour where nobody sees it
    assert "panel · demo · no adapter" in result.stderr


def test_problems_one_after_another_as_json() -> None:
    """Whatever the model says of the first, the second's gold is its own answer, so it is correct."""
    answers = told("--arm", "thinking", typed=f"{PROBLEM}\nWhat is 2+2?\n\nnot asked\n")
    assert [set(row) for row in answers] == [{"completion", "finish", "tag_valid", "answer"}] * 2
    [again] = told(PROBLEM, "--arm", "thinking", "--gold", str(answers[0]["answer"]))
    assert again["completion"] == answers[0]["completion"] and again["verdict"] == "correct"


def test_an_adapter_is_asked_by_its_ref(demo_store: Path, tmp_path: Path) -> None:
    store = Store(demo_store)
    training = next(ref for ref in store.refs("training") if store.read(ref, ["arm"])["arm"][0].as_py() == "panel")
    result = ask(PROBLEM, "--adapter", str(training)[:16], "--root", str(demo_store))
    assert f"panel · demo · {training} step 4" in result.stderr and result.stdout.count("answer: ") == 1
    with pytest.raises(UserError, match="has no adapter at step 3"):
        ask(PROBLEM, "--adapter", str(training), "--step", "3", "--root", str(demo_store))
    copy_study(demo_store, tmp_path / "light", weights=False)
    with pytest.raises(UserError, match="its weights are not in this copy"):
        ask(PROBLEM, "--adapter", str(training), "--root", str(tmp_path / "light"))
    copy_study(demo_store, tmp_path / "whole")
    rows = searched(tmp_path / "whole", *REVISED, "--adapter", str(training))
    assert {row["adapter"] for row in rows} == {str(training)} and {row["step"] for row in rows} != {0}
    bare = searched(tmp_path / "whole", *REVISED)
    assert {row["adapter"] for row in bare} == {None} and {row["step"] for row in bare} == {0}
    assert {row["node"] for row in bare} & {row["node"] for row in rows}, "the problem itself is filed alike"


def test_a_tree_is_printed_and_its_rounds_are_in_the_ledger_and_paid_for_once(tmp_path: Path) -> None:
    first, second, last = ask(PROBLEM, *REVISED, "--root", str(tmp_path)).stdout.splitlines()
    assert first.startswith("#1 draw: ") and second.startswith("  #2 revise: ")
    spent = sum(int(re.findall(r"\((\d+) tokens\)", line)[-1]) for line in (first, second))
    assert last.startswith("answer: ") and last.endswith(f"(2 completions, {spent} tokens)")
    book = Ledger(tmp_path)
    entered = {f"{problem}/{index}" for account, _ in book.accounts() for problem, index in book.keys(account)}
    assert entered == {row["node"] for row in searched(tmp_path, *REVISED)}
    assert Journal(tmp_path, "ask").spent().tokens == spent, "what was asked before costs nothing"
    (tmp_path / "prices.toml").write_text(f"[month]\ntokens = {spent + 1}\n")
    with pytest.raises(Parked, match="the team's month"):
        searched(tmp_path, *REVISED, "--seed", "1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--arm", "pannel"), "unknown arm 'pannel' .known: panel, "),
        (("--method", "rewarded"), "method rewarded is scored by a reward model: set reward to its folder"),
        ((*REVISED, "--tokens", "128"), "tokens=128 is below one rollout, whose completion alone may take 128"),
    ],
)
def test_a_mistake_is_told_before_a_model_is_loaded(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        ask(PROBLEM, *words, "--root", str(tmp_path))
