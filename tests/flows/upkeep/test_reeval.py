"""Nightly re-evaluation: what is drawn on which night, what counts as drift, and what is only reported."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from flows.study.profiles import DEMO
from flows.study.resolve import PoolInputs, Study
from flows.upkeep import reeval
from flows.upkeep.reeval import Kept, Unchecked, counts_of, night, page_of, sentence_of
from storage.artifacts.schemas import Training
from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.records.record import Night, put_overrides
from tasks.domain.policies import ServedAdapter
from tasks.domain.scaffolds import ARMS
from tasks.engines.protocols import Completion, Request
from tasks.engines.toolbox import Toolbox
from tasks.grading import active_grader
from tasks.pool import split_pool
from tasks.sampling import sample_rollouts
from tasks.stage import Session, session
from tests.stages.test_sampling import DRAW, GROUP, POLICY, Lab, lab
from tests.storage.records.test_records import a_night

__all__ = ["lab"]  # the fixture

STUDY = Study(DEMO, dict.fromkeys(ARMS, POLICY.model), {"": PoolInputs()}, "b" * 64, {})
#: A completion of the laboratory's engine has two tokens.
ONE_PROBLEM = 2 * GROUP


class Nights:
    """An adapter of the laboratory, night after night."""

    def __init__(self, lab: Lab, patch: pytest.MonkeyPatch, exact: bool) -> None:
        self.lab, self.day, self.study = lab, 0, replace(STUDY, grader=lab.toolbox.grader)
        self.engine, self.generate = "from-the-seed 1", lab.engine.generate
        patch.setattr(reeval, "now", lambda: f"2026-01-{self.day:02}T02:00:00+00:00")
        patch.setattr(reeval, "environment_now", lambda study, policy: self.environment())
        patch.setattr(Toolbox, "exact", exact)
        self.patch = patch
        self.current = Session(lab.store, lab.toolbox)
        with session(self.current):
            splits = split_pool(pool=lab.pool, heldout_per_source=2, seed=0)
            given = {"pool": lab.pool, "splits": splits, "policy": POLICY, "sampling": DRAW, "group_size": GROUP}
            reference = sample_rollouts(**given, split="heldout")
        self.kept = Kept(**given, training=Training.of("1" * 16), reference=reference, step=self.current.steps[-1])
        self.problems = lab.store.manifest(reference).rows // GROUP

    def environment(self) -> dict[str, str]:
        return {"engine": self.engine, "grader": self.study.grader.version}

    def pass_to(self, engine: str, *, right: bool = True, token: int = 1) -> None:
        """Another engine, or the same one that says wrong things or other tokens."""

        def generate(requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
            for one in self.generate(requests, adapter):
                wrong = "<mutipersonaDebate>a</mutipersonaDebate> <answer>-12345</answer>"
                yield replace(one, text=one.text if right else wrong, token_ids=[token, 2])

        self.engine = engine
        self.patch.setattr(self.lab.engine, "generate", generate)

    def next(self, **options: int) -> tuple[Night, int]:
        """The next night, and how many rollouts it sampled."""
        self.day += 1
        return self.again(**options)

    def again(self, **options: int) -> tuple[Night, int]:
        before = self.lab.engine.sampled
        with session(self.current):
            found = night(self.current, self.study, self.kept, **options)  # type: ignore[arg-type]
        return found, self.lab.engine.sampled - before


@pytest.fixture
def exact(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Nights:
    return Nights(lab, monkeypatch, exact=True)


@pytest.fixture
def rounded(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """On a GPU: the same seeds may give other tokens."""
    return Nights(lab, monkeypatch, exact=False)


def test_an_exact_engine_repeats_some_completions_and_compares_tokens(exact: Nights) -> None:
    found, sampled = exact.next(canary_tokens=3 * ONE_PROBLEM)
    assert (found.state, found.drawn, sampled) == ("holds", "same", 3 * GROUP)
    assert found.found == f"nothing changed; {sampled} completions are the evaluation's, token by token"
    assert exact.again(canary_tokens=3 * ONE_PROBLEM) == (found, 0), "a second night of one day costs nothing"


def test_a_canary_draws_other_problems_each_night_with_seeds_of_its_own(rounded: Nights) -> None:
    first, sampled = rounded.next(canary_tokens=2 * ONE_PROBLEM)
    second, _ = rounded.next(canary_tokens=2 * ONE_PROBLEM)
    assert (first.state, first.drawn, sampled) == ("holds", "canary", 2 * GROUP) and len(first.problems) == 2
    assert first.problems != second.problems
    assert first.seed == second.seed != DRAW.seed
    book = Ledger(rounded.lab.store.root)
    assert sum(book.duplicates(account) for account, _ in book.accounts()) == 0
    assert [rounded.next(canary_tokens=0)[0].drawn, rounded.again(canary_tokens=0)[1]] == ["nothing", 0]


def test_a_worse_engine_is_drift_until_the_former_one_is_back(rounded: Nights) -> None:
    """Whole nights follow until three have confirmed it."""
    rounded.pass_to("from-the-seed 2", right=False)
    nights = [rounded.next(canary_tokens=0)[0] for _ in range(4)]
    assert [one.drawn for one in nights] == ["whole", "whole", "whole", "nothing"]
    assert {one.state for one in nights[:3]} == {"drifted"} and nights[0].tonight == 0.0
    assert nights[0].low is not None and nights[0].low > 0.1 and nights[0].z < -4
    assert "lower by" in nights[0].found and "(p = " in nights[0].found
    rounded.pass_to("from-the-seed 1")
    back, _ = rounded.next()
    assert (back.state, back.drawn) == ("holds", "whole")


def test_a_changed_verdict_is_drift_without_sampling(rounded: Nights) -> None:
    assert rounded.next(canary_tokens=ONE_PROBLEM)[0].state == "holds"
    golds = rounded.lab.store.read(rounded.lab.pool, ["gold"])["gold"].to_pylist()
    lines = [{"answer": "-12345", "gold": gold, "verdict": "correct", "reason": "a misprint"} for gold in set(golds)]
    put_overrides(rounded.lab.store.root, "\n".join(map(json.dumps, lines)))
    grader = active_grader(rounded.lab.store.root)
    rounded.study = replace(rounded.study, grader=grader)
    rounded.lab.toolbox.grader = grader
    found, sampled = rounded.next(canary_tokens=0)
    assert (found.state, found.evaluated, sampled) == ("drifted", 1.0, 0)
    assert "stored verdicts changed" in found.found and found.found.startswith("grader ")
    compared, _ = rounded.next(canary_tokens=ONE_PROBLEM)  # the first night is graded again too
    assert (compared.tonight, compared.expected) == (1.0, 1.0)


def test_a_damaged_adapter_is_called_damaged(rounded: Nights) -> None:
    store, kept = rounded.lab.store, rounded.kept
    assert reeval._why_not(store, kept) == "its evaluation is not made yet"
    (store.path(kept.reference) / "data.parquet").write_bytes(b"x")
    assert f"{kept.reference} is damaged" in reeval._why_not(Store(store.root), kept)


def test_the_page_has_a_sentence_a_table_and_a_picture(tmp_path: Path) -> None:
    band = {"expected": 0.6, "low": 0.5, "high": 0.7, "drawn": "whole"}
    low = a_night("panel", tonight=0.2, state="drifted", found="accuracy 0.200", **band).keep(tmp_path)
    found = [Unchecked("other", "its pool is damaged"), low, a_night("control")]
    assert counts_of(found) == "1 hold, 1 drifted, 1 were not checked"
    assert sentence_of(found) == f"{counts_of(found)}: panel: accuracy 0.200; other: its pool is damaged"
    text = page_of(found, tmp_path)
    assert "| panel | drifted | 0.500 | 0.200 | accuracy 0.200 |" in text
    assert text.count("](data:image/svg+xml;base64,") == 1
