"""`varband plan`: every study by name, what each stage will cost, and what is there already."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from flows.costs import Cost, costs, total
from flows.matrix import MATRIX, PROFILES
from flows.prices import prices_of
from flows.profiles import QWEN_1_5B, Lesson, Profile
from flows.resolve import Study, profile_named
from flows.run import plan
from storage.ledger import Ledger
from storage.store import Store
from tasks.domain.policies import BaseModel, Policy
from tasks.domain.prices import Prices, TokenPrice
from tasks.domain.sources import SourceSpec
from tasks.rollouts import account_of

MODEL = BaseModel(name="a model", sha256="c" * 64)
QUESTIONS = ("matched-thinking", "seeds", "diversity-after", "n-64", "n-128", "token-matched", "controls", "chain")
LINES = 40
PLAIN = replace(QWEN_1_5B, lessons=(), arms=("panel",), pool=replace(QWEN_1_5B.pool, sources=("aime24", "aime25")))


def study_of(profile: Profile, folder: Path) -> Study:
    """The profile as if its inputs were here: every source is a file of LINES lines."""
    (file := folder / "problems.jsonl").write_text("{}\n" * LINES)
    places: dict[str, Path] = {}

    def found(names: tuple[str, ...]) -> tuple[SourceSpec, ...]:
        specs = tuple(SourceSpec(name, f"{i:x}".rjust(64, "e")) for i, name in enumerate(names))
        places.update({spec.sha256: file for spec in specs})
        return specs

    lessons: dict[str, Lesson] = {lesson.name: lesson for lesson in profile.lessons}
    sources = {"": found(profile.pool.sources)} | {name: found(x.pool.sources) for name, x in lessons.items()}
    return Study(profile, MODEL, sources, "d" * 64, places)


def priced(profile: Profile, folder: Path, prices: Prices | None = None) -> list[tuple[str, Cost]]:
    store, study = Store(folder), study_of(profile, folder)
    store.prepare()
    planned = plan(study, store)
    each = costs(study, store, planned, prices or prices_of(profile.name))
    return [(step.step.title, cost) for step, cost in zip(planned, each, strict=True)]


def test_every_open_question_is_a_profile_by_name() -> None:
    assert {p.name for p in MATRIX} == {f"{study}/{q}" for study in ("qwen-1.5b", "paper") for q in QUESTIONS}
    assert all(profile_named(name) is profile for name, profile in PROFILES.items())


@pytest.mark.parametrize("name", [p.name for p in MATRIX])
def test_every_open_question_is_priced(name: str, tmp_path: Path) -> None:
    whole = total([cost for _, cost in priced(PROFILES[name], tmp_path)])
    assert min(whole.rollouts, whole.tokens, whole.gpu_hours, whole.usd, whole.bytes) > 0
    assert whole.basis == "assumed", "nothing was measured here"


def test_a_stage_costs_its_rollouts_times_their_length(tmp_path: Path) -> None:
    """80 problems × 8 rollouts = 640, each of 250 prompt tokens and 0.6 × 1024 others, until lengths are measured."""
    prices = Prices(tokens=(TokenPrice(prompt=1.0, completion=10.0),), sampled_per_second=1000)
    screen = dict(priced(PLAIN, tmp_path, prices))["screen panel"]
    assert (screen.rollouts, screen.rollouts_reused) == (640, 0)
    assert screen.tokens == pytest.approx(640 * (250 + 614.4))
    assert screen.usd == pytest.approx(640 * (250 * 1 + 614.4 * 10) / 1e6)
    assert screen.gpu_hours == pytest.approx(640 * (250 + 614.4) / 1000 / 3600)


def test_what_the_ledger_holds_is_not_paid_for_again(tmp_path: Path) -> None:
    """100 of the 640 are there, of 10 + 20 tokens each: those lengths are taken for the others."""
    draw = PLAIN.screening
    account = account_of(Policy(arm="panel", model=MODEL), draw.sampling)
    rows = pa.table(
        {"problem_id": [f"p{i // 8}" for i in range(100)], "rollout": pa.array([i % 8 for i in range(100)], pa.int32()),
         "num_prompt_tokens": [10] * 100, "num_tokens": [20] * 100}
    )  # fmt: skip
    Ledger(tmp_path).append(account, rows, {"arm": "panel", "max_tokens": draw.sampling.max_tokens})
    screen = dict(priced(PLAIN, tmp_path))["screen panel"]
    assert (screen.rollouts, screen.rollouts_reused, screen.basis) == (540, 100, "measured")
    assert screen.tokens == 540 * 30


def test_what_an_earlier_stage_will_have_sampled_is_not_paid_for_again(tmp_path: Path) -> None:
    """50 held-out problems: 128 rollouts each at the end; the 2 each of the training curve's first point are of them."""
    question = replace(PLAIN, final=replace(PLAIN.final, group_size=128))
    base = [cost for title, cost in priced(question, tmp_path) if title == "evaluate panel at step 0"]
    assert [(cost.rollouts, cost.rollouts_reused) for cost in base] == [(50 * 128, 0), (0, 50 * 2)]
