"""The training stage with the demo's model and a real engine: what it draws, pays for, names and resumes."""

import json
import shutil
from collections import defaultdict
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from storage.artifacts.schemas import DIAGNOSTICS, Bands, Calibrations, Pool, Splits, Training
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.ledger import Ledger
from tasks.domain.grading.grading import ActiveGrader, Overrides
from tasks.domain.grpo.learner_config import LEAST_TEMPERATURE
from tasks.domain.grpo.rewards import RewardTerm
from tasks.domain.partitions import by_trace
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.engines.encoding import SentenceEncoder, labelled_sha256
from tasks.engines.hardware import EngineName
from tasks.engines.learning import checkpoints
from tasks.engines.toolbox import Toolbox
from tasks.partitions import calibrate_partitions
from tasks.rollouts import account_of
from tasks.stage import Session, session
from tasks.training import place_of, step_sampling, train_adapter
from tests.dashboards.synthetic import put
from tests.engines.learning.test_learner import CONFIG
from tests.plugged import install
from tests.stages.test_calibration import DIGEST, FOLDER, NAME
from tests.stages.training_lab import DRAW, EVALUATION, START, STILL, Lab, a_lab, killed_and_resumed, lab, short
from tests.tiny_model import write_tiny_model

__all__ = ["lab"]


def texts(store: Store, policy: Policy, sampling: Sampling) -> dict[str, dict[int, str]]:
    """problem → rollout → its text."""
    table = Ledger(store.root).read(account_of(policy, sampling))
    assert table is not None
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for row in table.select(["problem_id", "rollout", "completion"]).to_pylist():
        found[row["problem_id"]][row["rollout"]] = row["completion"]
    return found


def test_a_problem_that_comes_round_again_is_drawn_anew(lab: Lab) -> None:
    """Both steps train on the whole pool. Rollouts that equal the last visit's are as many as two unrelated draws of
    one problem give (within three standard errors); with one seed for both visits all of them are."""
    made = lab.train(STILL, evaluation_group_size=4)
    after = [replace(START, adapter=str(made), adapter_step=step, step=step) for step in (1, 2)]
    first = texts(lab.store, START, step_sampling(DRAW, 0, 1))
    second = texts(lab.store, after[0], step_sampling(DRAW, 0, 2))
    assert first.keys() == second.keys() and len(first) >= 6
    same = np.array([[a == b for b in second[p].values()] for p in first for a in first[p].values()])
    same = same.reshape(len(first), STILL.group_size, STILL.group_size)
    again = same.diagonal(axis1=1, axis2=2)
    chance = same[:, ~np.eye(STILL.group_size, dtype=bool)].mean()
    assert chance < 0.5
    assert again.mean() <= chance + 3 * np.sqrt(chance * (1 - chance) / again.size)
    # evaluations are paired across steps: with weights that stand still, they are the same
    assert texts(lab.store, START, EVALUATION) == texts(lab.store, after[1], EVALUATION)


def test_lessons_of_one_pool_and_one_seed_draw_noise_of_their_own(lab: Lab) -> None:
    """A training that starts from another, with the same seeds and the same problems: with weights that stand still
    it would else sample the same texts again. The first one draws as it always did."""
    start, training, drawn = START, None, []
    for place in range(3):
        training = lab.train(replace(STILL, steps=1, group_size=4), start=start, init=training)
        assert place_of(training) == place + 1
        drawn.append(texts(lab.store, start, step_sampling(DRAW, 0, 1, place)))
        start = replace(start, adapter=str(training), adapter_step=1)
    assert step_sampling(DRAW, 0, 1, 0) == step_sampling(DRAW, 0, 1)
    seeds = {step_sampling(DRAW, seed, step, place).seed for seed in (0, 1) for step in (1, 2) for place in (0, 1, 2)}
    assert len(seeds) == 12
    for one, other in combinations(drawn, 2):
        assert one.keys() == other.keys()
        assert sum(one[p] == other[p] for p in one) < len(one) / 2


def test_rollouts_that_the_learner_cannot_be_exact_about_are_refused(lab: Lab) -> None:
    """Before anything is sampled. vLLM draws at the least temperature where a lower one is asked for."""
    from vllm import SamplingParams

    assert SamplingParams(temperature=0.005).temperature == LEAST_TEMPERATURE
    with pytest.raises(UserError, match=r"rollouts\.top_p is 0\.9"):
        lab.train(STILL, rollouts=replace(DRAW, top_p=0.9))
    assert not list(Ledger(lab.store.root).accounts())


def test_a_training_remade_for_other_rewards_takes_no_rollouts_of_its_former_weights(lab: Lab) -> None:
    """They lie in the ledger under its name. For the same rewards they are its own, and none is sampled again."""
    plain, strict = ActiveGrader(), ActiveGrader(overrides=Overrides((("7", "7", "wrong", "a test"),)))

    def made(grader: ActiveGrader) -> Training:
        lab.toolbox.grader = grader
        return lab.train(replace(STILL, groups_per_step=2, group_size=2), evaluation_group_size=1)

    def forget(training: Training) -> None:
        shutil.rmtree(lab.store.path(training))
        shutil.rmtree(lab.store.root / ".work" / str(training), ignore_errors=True)

    forget(training := made(plain))
    assert lab.notes(made(plain))["sampled_rollouts"] == "0"
    forget(training)
    with pytest.raises(UserError, match=rf"(?s)(?=.*{strict.version.replace('+', '.')}).*Move away the 2 folders"):
        made(strict)
    for folder in (lab.store.root / "ledger").glob("*/*"):
        if str(training) in (folder / "about.json").read_text():
            shutil.rmtree(folder)
    notes = lab.notes(made(strict))
    assert int(notes["sampled_rollouts"]) > 0 and notes["engine"] and notes["serving"]


@pytest.mark.parametrize("engine", ["transformers", pytest.param("vllm", marks=pytest.mark.slow)])
def test_sampling_while_training_gives_the_same_bits_twice_under_the_policies_that_wrote(
    tmp_path: Path, engine: EngineName
) -> None:
    """Staleness 1. One thread, or OpenMP takes all cores in a thread that is told nothing and vLLM refuses to run."""
    threads = torch.get_num_threads()
    torch._C.set_num_threads(1)  # torch's own: vLLM on a CPU puts one that does nothing in its place
    learner, found = short(steps=4, learning_rate=1e-2, staleness=1), list[tuple[Store, Training, bytes]]()
    for root in ("one", "other"):
        for at in a_lab(tmp_path / root, engine, per_source=6):
            made = at.train(learner, evaluation_group_size=2)
            found.append((at.store, made, at.weights(made, 4)))
    torch._C.set_num_threads(threads)
    (store, made, weights), (_, _, others) = found
    assert weights == others

    def rows(step: int, policy: Policy) -> int:
        table = Ledger(store.root).read(account_of(policy, step_sampling(DRAW, 0, step)))
        return 0 if table is None else table.num_rows

    after = {step: replace(START, adapter=str(made), adapter_step=step, step=step) for step in (1, 2, 3)}
    assert [rows(1, START), rows(2, START), rows(3, after[1]), rows(4, after[2])] == [16, 16, 16, 16]
    assert [rows(2, after[1]), rows(3, after[2]), rows(4, after[3])] == [0, 0, 0]


# Objectives.


def test_what_two_objectives_sample_alike_is_paid_once(lab: Lab) -> None:
    """Their first steps ask the same start the same problems with the same noise; the second steps are other policies."""
    notes = [lab.notes(lab.train(short(advantage=a))) for a in ("centred", "max_rl")]
    assert [int(one["sampled_rollouts"]) for one in notes] == [2 * 4 * 4, 4 * 4]
    assert 0 < int(notes[1]["sampled_tokens"]) < int(notes[0]["sampled_tokens"])


def test_answers_and_strategies_reach_the_objective(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Visits are kept in the checkpoint while it trains; what the objective says of each step lies beside the rows."""
    kept: list[dict] = []
    save = checkpoints.save

    def look(root: Path, state: checkpoints.State) -> Path:
        folder = save(root, state)
        kept.append(json.loads((folder / "state.json").read_text())["objective"])
        return folder

    monkeypatch.setattr(checkpoints, "save", look)
    ways = lab.train(short(advantage="darling_trace", bonus_gate="none"))
    explored = lab.train(short(advantage="ucb_mean", bonus_gate="none", seed=5))
    for made, wanted in ((explored, {"signal_groups", "distinct_answers", "bonus"}), (ways, {"classes", "diversity"})):
        rows = lab.diagnostics(made)
        assert [*rows[0]] == DIAGNOSTICS.names and wanted <= {row["metric"] for row in rows}
        assert {row["step"] for row in rows} == {1, 2}
    assert all(1 <= row["value"] <= 4 for row in rows if row["metric"] == "classes")
    visits = kept[-1]["visits"]
    assert 4 <= len(visits) <= 8 and 0 < sum(sum(answers.values()) for answers in visits.values()) <= 2 * 4 * 4


def test_a_reward_of_another_package_is_paid_for_what_was_sampled(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean of each part by step; bands and accuracy are those of the same training without it."""
    monkeypatch.syspath_prepend(str(install(tmp_path)))
    terms = (RewardTerm(name="correct"), RewardTerm(name="concise", weight=2.0))
    config = replace(STILL, steps=1)
    brief, plain = lab.train(replace(config, rewards=terms)), lab.train(config)
    assert brief != plain
    book = Ledger(lab.store.root)
    [account] = [account for account, _ in book.accounts()]
    table = book.read(account)
    assert table is not None
    rows = table.to_pylist()
    paid = [2 / (1 + row["num_tokens"]) if row["verdict"] == "correct" else 0.0 for row in rows]
    assert any(paid)
    found = {row["metric"]: row["value"] for row in lab.diagnostics(brief)}
    accuracy = np.mean([row["correct"] for row in rows])
    assert found["reward_correct"] == pytest.approx(accuracy) and found["reward_concise"] == pytest.approx(
        np.mean(paid)
    )
    assert not any(row["metric"].startswith("reward_") for row in lab.diagnostics(plain))
    (step,), (usual,) = lab.store.read(brief).to_pylist(), lab.store.read(plain).to_pylist()
    assert step["reward_mean"] == pytest.approx(accuracy + np.mean(paid))
    assert {n: step[n] for n in ("correct_mean", "variance")} == {n: usual[n] for n in ("correct_mean", "variance")}


def test_a_training_with_a_judge_is_killed_and_resumed_to_the_byte(lab: Lab, tmp_path: Path) -> None:
    """Its scores are those of the completions alone, so a step that is scored again is rewarded the same."""
    folder, digest = write_tiny_model(tmp_path / "judge"), "1" * 64
    lab.toolbox.places[digest] = folder
    judge = RewardTerm(name="judge", model=f"sha256:{digest}", rubric="Is it brief?", weight=0.5)
    config = short(rewards=(RewardTerm(name="correct"), judge))
    resumed = killed_and_resumed(lab, lambda: lab.train(config), 2)
    weights, rows = lab.weights(resumed), lab.diagnostics(resumed)
    lab.move()
    assert lab.weights(lab.train(config)) == weights and lab.diagnostics(resumed) == rows
    paid = [row["value"] for row in rows if row["metric"] == "reward_judge"]
    assert len(paid) == 2 and 0 < min(paid) < max(paid) < 0.5
    assert weights != lab.weights(lab.train(short()))


def test_a_training_by_the_encoders_classes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """DARLING: one call of the encoder a step; the classes are those of the calibrated threshold, of which a problem's
    traces that are none at all are one too; the calibration is an input."""
    calls: list[int] = []
    encode = SentenceEncoder.encode
    monkeypatch.setattr(SentenceEncoder, "encode", lambda self, texts: calls.append(len(texts)) or encode(self, texts))
    lab.toolbox.places[DIGEST] = FOLDER  # type: ignore[index]
    whole = Sampling(max_tokens=128, seed=2)  # long enough for a trace to end
    with session(Session(lab.store, lab.toolbox)):
        known: Calibrations = calibrate_partitions(
            encoder=NAME, weights_sha256=DIGEST, max_tokens=256, labelled=labelled_sha256()
        )
    made = lab.train(short(advantage="darling_encoded"), rollouts=whole, calibration=known)
    assert len(calls[-2:]) == 2 and all(0 < n <= 16 for n in calls[-2:])
    assert lab.store.manifest(made).recipe.inputs["calibration"] == [str(known)]
    threshold = next(r["threshold"] for r in lab.store.read(known).to_pylist() if r["partition"] == "trace")
    rows = Ledger(lab.store.root).read(account_of(START, step_sampling(whole, STILL.seed, 1)))
    assert rows is not None
    encoder, by_problem = SentenceEncoder(FOLDER, name=NAME, max_tokens=256), []
    for problem in dict.fromkeys(rows["problem_id"].to_pylist()):
        own = [r for r in rows.to_pylist() if r["problem_id"] == problem]
        if any(r["correct"] for r in own):
            written = [r["trace"] for r in own if r["trace"]]
            ways = len(set(by_trace(encoder.encode(written)[0], threshold))) if written else 0
            by_problem.append(ways + (len(written) < len(own)))
    [classes] = [r["value"] for r in lab.diagnostics(made) if (r["step"], r["metric"]) == (1, "classes")]
    assert classes == pytest.approx(sum(by_problem) / len(by_problem))
    assert max(by_problem) > 1, "else the partition tells nothing apart"
    assert sum(row["updates"] for row in lab.store.read(made).to_pylist()) > 0


# A training that has nothing to train on is refused before anything is sampled.


@pytest.mark.parametrize(
    ("split", "banded", "words"),
    [
        ("train", True, "panel: no training problem is in the variance band"),
        ("heldout", False, "panel: all problems of the pool are held out, so no problem is left to train on"),
    ],
)
def test_a_pool_with_nothing_to_train_on(tmp_path: Path, split: str, banded: bool, words: str) -> None:
    """One problem: outside held-out and never solved, so no group would have a gradient; or held out itself."""
    store = Store(tmp_path)
    store.prepare()
    problem = {"problem_id": "p", "source": "s"}
    texts = dict.fromkeys(("source_id", "problem", "gold", "gold_raw", "answer_type", "cluster"), "1")
    pool, splits = put(store, Pool, [problem | texts]), put(store, Splits, [problem | {"split": split}])
    counted = {"arm": "panel", "group_size": 8, "num_correct": 0, "band": "all_zero"}
    bands = put(store, Bands, [problem | counted])
    start, draw = Policy(arm="panel", model=BaseModel(name="demo", sha256="0")), Sampling(max_tokens=8, seed=0)
    how: dict[str, Any] = {"learner": CONFIG, "rollouts": draw, "evaluation": draw, "evaluation_group_size": 1}
    with session(Session(store, Toolbox())), pytest.raises(UserError, match=words):
        train_adapter(pool=pool, splits=splits, bands=bands if banded else None, start=start, **how)
