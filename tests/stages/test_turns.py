"""Objectives that need more of a step than one rollout each, through the stage with the demo's model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from storage.artifacts.fingerprint import restored
from storage.artifacts.kinds import Training
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.ledger import Ledger
from tasks.domain.grpo.second_scaffold import CRITIC, several
from tasks.domain.grpo.steps import TrainRollout
from tasks.domain.scaffolds import PANEL, Scaffold
from tasks.domain.search.method import PREFIX
from tasks.engines.encoding import SentenceEncoder, labelled_problems, labelled_sha256
from tasks.engines.hardware import Hardware
from tasks.engines.toolbox import Toolbox
from tasks.partitions import calibrate_partitions
from tasks.rollouts import ensure_rollouts
from tasks.stage import Progress, Session, session
from tasks.training import train_adapter
from tasks.turns.drawing import Turns, with_trace_classes
from tasks.turns.refining import as_train_rollout
from tests.stages.test_calibration import DIGEST, FOLDER, NAME
from tests.stages.test_training import DEMO, DRAW, EVALUATION, START, STILL, Lab, lab

__all__ = ["lab"]
NONE = np.zeros(1, np.float32)
TWO_STEPS = replace(STILL, groups_per_step=2, group_size=3, learning_rate=1e-3)
SECOND = {"refined": CRITIC, "multi_agent": CRITIC, "vpo": several(PANEL, 3), "multi_rlvr_sum": several(PANEL, 3)}


@pytest.fixture
def train(lab: Lab) -> Callable[..., Training]:
    """Prompts that hold a draft and a critique are longer than others."""
    hardware = Hardware(engine="transformers", device="cpu", threads=1, max_model_len=1024)

    def make(
        advantage: str, *, context: int = 1024, listener: Callable[[Progress], None] = lambda _: None, **more: object
    ) -> Training:
        tools = Toolbox(hardware, places={START.model.sha256: DEMO})
        try:
            with session(Session(lab.store, tools, listener=listener)):
                return train_adapter(
                    pool=lab.pool,
                    splits=lab.splits,
                    bands=None,
                    start=START,
                    learner=replace(TWO_STEPS, advantage=advantage, **more),  # type: ignore[arg-type]
                    rollouts=DRAW,
                    evaluation=EVALUATION,
                    evaluation_group_size=1,
                    second=SECOND.get(advantage),
                    context=context if SECOND.get(advantage) == CRITIC else None,
                )
        finally:
            tools.close()

    return make


def weights(lab: Lab, made: Training) -> bytes:
    return (lab.store.files(made) / "step-0002" / "adapter_model.safetensors").read_bytes()


def asked(lab: Lab) -> dict[str, int]:
    """Rows of the ledger by the scaffold that asked for them and by whether they are of a later turn."""
    book, found = Ledger(lab.store.root), dict[str, int]()
    for account, about in book.accounts():
        rows = book.read(account)
        assert rows is not None
        for problem in rows["problem_id"].to_pylist():
            key = f"{about['scaffold']} {'later' if problem.startswith(PREFIX) else 'first'}"
            found[key] = found.get(key, 0) + 1
    return found


def test_a_step_of_drafts_critiques_and_refinements(lab: Lab, train) -> None:
    """The critic asks by a scaffold of its own; every turn's tokens are counted; the trained rollouts are refinements."""
    made = train("refined")
    found, each = asked(lab), TWO_STEPS.steps * TWO_STEPS.groups_per_step * TWO_STEPS.group_size
    heldout = lab.store.read(lab.splits)["split"].to_pylist().count("heldout")
    assert found == {
        f"{PANEL.digest} first": each + 2 * heldout,
        f"{CRITIC.digest} later": each,
        f"{PANEL.digest} later": each,
    }
    steps = lab.store.read(made).to_pylist()
    notes = lab.store.manifest(made).provenance.notes
    assert sum(row["num_tokens"] for row in steps) < int(notes["sampled_tokens"])
    assert all(row["num_tokens"] > each // TWO_STEPS.steps * row["length_mean"] for row in steps)


@pytest.mark.parametrize("turn", [4, *(pytest.param(turn, marks=pytest.mark.slow) for turn in (1, 2, 5))])
def test_killed_between_two_turns_and_resumed_is_the_undisturbed_run(
    lab: Lab, train, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    """Nothing is asked for twice, and the weights are the same bytes. Right is what has an even number of tokens, so
    that every step has an update."""
    monkeypatch.setattr("tasks.turns.refining.as_train_rollout", lambda *of: even(as_train_rollout(*of)))
    calls = iter(range(1, 99))

    def dying(*given: object, **others: object) -> object:
        done = ensure_rollouts(*given, **others)  # type: ignore[arg-type]
        if next(calls) == turn:
            raise KeyboardInterrupt
        return done

    with monkeypatch.context() as patched:
        patched.setattr("tasks.training.ensure_rollouts", dying)
        with pytest.raises(KeyboardInterrupt):
            train("refined")
    before = sum(asked(lab).values())
    made = train("refined")
    resumed, found = weights(lab, made), asked(lab)
    sampled = int(lab.store.manifest(made).provenance.notes["sampled_rollouts"])
    assert before + sampled == sum(found.values()), "what was sampled before the kill was not sampled again"
    lab.store = elsewhere(lab)
    whole = train("refined")
    assert weights(lab, whole) == resumed and asked(lab) == found
    assert sum(row["updates"] for row in lab.store.read(whole).to_pylist()) > 0


def even(rollout: TrainRollout) -> TrainRollout:
    return replace(rollout, correct=len(rollout.token_ids) % 2 == 0)


def elsewhere(lab: Lab) -> Store:
    """Another store, with the problems alone."""
    store = Store(lab.store.root.parent / "elsewhere")
    store.prepare()
    for ref in (lab.pool, lab.splits):
        shutil.copytree(lab.store.path(ref), store.path(ref))
    return store


@pytest.mark.parametrize("advantage", ["vpo", "multi_rlvr_sum"])
def test_several_answers_in_one_completion(lab: Lab, train, advantage: str) -> None:
    made = train(advantage)
    assert f"{several(PANEL, 3).digest} first" in asked(lab)
    assert lab.store.read(made).num_rows == 2


@pytest.mark.parametrize("advantage", ["refined", "vpo", "darling_encoded"])
def test_what_an_objective_needs_is_asked_for_before_anything_is_sampled(
    lab: Lab, train, advantage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.SECOND", {})
    with pytest.raises(UserError, match=f"advantage {advantage} needs") as raised:
        train(advantage)
    assert "\n" not in str(raised.value) and not asked(lab)


def test_the_recipe_names_the_second_scaffold(lab: Lab, train) -> None:
    told = lab.store.manifest(train("refined")).recipe.arguments["second"]
    assert restored(Scaffold, told) == CRITIC


def test_darling_by_the_encoder_joins_what_is_reworded_and_embeds_a_step_at_once(lab: Lab, monkeypatch) -> None:
    """By the calibrated threshold of a real encoder: the labelled traces of two problems, and one that is not there."""
    calls: list[int] = []
    with session(Session(lab.store, Toolbox(places={DIGEST: FOLDER}))) as at:
        known = calibrate_partitions(encoder=NAME, weights_sha256=DIGEST, max_tokens=256, labelled=labelled_sha256())
        one, two = labelled_problems()[:2]
        texts = [*((t, "a") for t in one.traces), (None, "a"), *((t, "b") for t in two.traces)]
        rows = [{"trace": text} for text, _ in texts]
        rollouts = [TrainRollout(p, "s", i, [1], [1], NONE, True, True, False) for i, (_, p) in enumerate(texts)]
        encode = at.toolbox.embedder(NAME, DIGEST, 256).encode
        monkeypatch.setattr(SentenceEncoder, "encode", lambda _, given: calls.append(len(given)) or encode(given))
        turns = Turns(replace(TWO_STEPS, advantage="darling_encoded"), START, None, known)
        classes = [r.trace_class for r in with_trace_classes(rollouts, rows, turns.by_encoder)]
    first, null, second = classes[: len(one.traces)], classes[len(one.traces)], classes[len(one.traces) + 1 :]
    assert calls == [len(texts) - 1] and null is None
    for found, solutions in ((first, one.solutions), (second, two.solutions)):
        assert len(set(found)) > 1 and None not in found
        pairs = list(combinations(range(len(found)), 2))
        joined = [(i, j) for i, j in pairs if found[i] == found[j]]
        assert np.mean([solutions[i] == solutions[j] for i, j in joined]) > np.mean(
            [solutions[i] == solutions[j] for i, j in pairs]
        )
