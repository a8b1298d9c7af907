"""Searches of what is amiss: no problem, no answer, no weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from storage.errors import UserError
from tasks.domain.policies import ServedAdapter
from tasks.domain.search.method import Ask
from tasks.domain.search.registry import method_named
from tasks.engines.grading.graders import Graders
from tasks.engines.protocols import Completion, Request
from tasks.rollouts import entered
from tasks.searching.driver import uncut
from tasks.searching.reading import hand_over
from tasks.searching.tree import Terms, Tree
from tests.stages.search_lab import DRAW, END, EVERY, POLICY, FromPromptAndSeed, a_lab


@pytest.fixture(scope="module")
def graders() -> Iterator[Graders]:
    with Graders() as made:
        yield made


class Mute(FromPromptAndSeed):
    """It ends every text without an answer, steps too."""

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        for done in super().generate(requests, adapter):
            yield replace(done, text="I cannot say")


@pytest.mark.parametrize("name", EVERY)
def test_a_problem_that_nobody_answers_has_no_answer(tmp_path: Path, graders: Graders, name: str) -> None:
    for lab in a_lab(tmp_path, graders, engine=Mute()):
        rows = lab.search(name)
        last = {row["problem_id"]: row for row in rows}.values()
        assert {row["chosen_answer"] for row in last} == {None} and not any(row["chosen_correct"] for row in rows)


@pytest.mark.parametrize("size", [16, None])
def test_no_problem_is_no_search(tmp_path: Path, graders: Graders, size: int | None) -> None:
    for lab in a_lab(tmp_path, graders, batch_size=size):
        assert lab.search(f"beam:end={END}", split="heldout") == [] and lab.engine.sampled == 0


def test_what_reads_an_adapter_again_says_where_its_weights_are_not(tmp_path: Path, graders: Graders) -> None:
    """The ledger has every rollout, but self-certainties are of distributions."""
    for lab in a_lab(tmp_path, graders):
        problem = lab.store.read(lab.pool).to_pylist()[0]
        gone = ServedAdapter("adapter-1", tmp_path / "gone")
        terms = Terms(policy=POLICY, sampling=DRAW, tokens=1, context=10**6, adapter=gone)
        lab.search("first:width=1")
        for name, said in (
            ("first", None),
            ("self_certainty", r"adapter-1: its weights are not in this copy .* self-cert"),
        ):
            tree = Tree(problem, method_named(name), terms)
            asked = uncut([(tree, Ask())], terms, {})
            with pytest.raises(UserError, match=said) if said else nullcontext():
                hand_over(asked, entered([request for _, _, request in asked]).to_pylist(), terms)
                assert len(tree.hand) == 1
