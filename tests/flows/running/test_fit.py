"""A prompt that does not fit is found before anything is paid for."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flows.experiment import experiment
from flows.problems import prepare
from flows.running.accounting import accounted
from flows.running.fit import longest_prompts
from flows.running.forecast import Forecast, prose_golds
from flows.running.plan import plan
from flows.running.sessions import Charging, silent, stages_of
from flows.study.request import profile_named
from flows.study.resolve import Study, resolve
from flows.study.settings import overridden
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.budget import Budget
from tasks.domain.scaffolds import SCAFFOLDS
from tasks.engines.sampling.prompts import encode_prompt, loaded_tokenizer

LONG = "Add 1 and 2" + " and 3" * 200 + "."


def demo_on(tmp_path: Path, *settings: str) -> Study:
    """The demo on problems of a file, of which one is long."""
    lines = [{"problem": f"Add {n} and {n}.", "gold": str(2 * n), "id": f"p{n}"} for n in range(20)]
    long = {"problem": LONG, "gold": "603", "id": "long"}
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines, long]))
    wishes = (f"pool.sources={tmp_path / 'p.jsonl'}", "pool.synthetic=0", "pool.heldout_per_source=4", *settings)
    profile = overridden(profile_named("demo"), wishes)
    return resolve(profile, Store(tmp_path / "store"))


def test_the_plan_says_the_longest_prompt_and_the_run_refuses_it(tmp_path: Path) -> None:
    study = demo_on(tmp_path, "benchmarks=[]")
    store, model = Store(tmp_path / "store"), study.places[study.models["panel"].sha256]
    planned = plan(study, store)
    found = {one.arm: one for one in longest_prompts(study, store, planned)}
    tokenizer = loaded_tokenizer(model)
    for arm in ("panel", "thinking"):
        tokens = len(encode_prompt(tokenizer, SCAFFOLDS[arm], LONG))
        assert (found[arm].tokens, found[arm].source_id) == (tokens, "long")
    notes = Forecast.of(study, store, Budget()).warnings
    assert any(note.startswith(f"longest prompts: panel {found['panel'].tokens:,} tokens") for note in notes)
    refusal = f"the prompt of problem long has {max(one.tokens for one in found.values())} tokens"
    assert any(refusal in note for note in notes)
    store.prepare()
    charging = Charging(run="run")
    with pytest.raises(UserError, match=refusal), accounted(study, store, planned, charging, silent, {}):
        raise AssertionError("it was begun")
    assert list(store.refs()) == []


def test_the_plan_warns_of_answers_in_words_that_would_be_read_as_mathematics(tmp_path: Path) -> None:
    study, store = demo_on(tmp_path), Store(tmp_path / "store")
    assert prose_golds(study, plan(study, store)) == ""
    lines = [{"problem": f"Which animal is number {n}?", "gold": "the dog", "id": f"w{n}"} for n in range(5)]
    with (tmp_path / "p.jsonl").open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
    study = resolve(study.profile, store)
    assert prose_golds(study, plan(study, store)).startswith("5 of 26 reference answers are words, such as 'the dog'")


def test_the_plan_refuses_a_source_with_too_few_problems_for_its_split(tmp_path: Path) -> None:
    study, store = demo_on(tmp_path, "pool.limit=4"), Store(tmp_path / "store")
    with pytest.raises(
        UserError,
        match=r"heldout_per_source: the study holds out 4 problems of each source, but p has only 4 in this pool; .* pool\.limit",
    ):
        Forecast.of(study, store, Budget())


def test_only_what_is_sampled_counts(tmp_path: Path) -> None:
    """A study whose rollouts are there, or are made elsewhere, needs no room for prompts; nor does a problem that its pool
    has left out."""
    study, store = demo_on(tmp_path, "benchmarks=[]", "pool.limit=10"), Store(tmp_path / "store")
    apart = replace(study.profile.hardware, without=("rollouts", "training", "searches"))
    elsewhere = replace(study, profile=replace(study.profile, hardware=apart))
    assert longest_prompts(elsewhere, store, plan(elsewhere, store)) == []
    store.prepare()
    with stages_of(study, store):
        prepare(study)
    before = longest_prompts(study, store, plan(study, store, experiment))
    assert {one.arm for one in before} == {"panel", "thinking"} and all(one.source_id != "long" for one in before)
