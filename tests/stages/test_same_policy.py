"""An engine that does not sample with the learner's weights than it was given is found out before its rollouts are entered."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.errors import UserError
from storage.ledger import Ledger
from tasks.domain.grpo.packing import PromptGroup
from tasks.domain.policies import Sampling, ServedAdapter
from tasks.engines.adapter_files import served_name
from tasks.engines.sampling.same_policy import EXACT, ROUNDED, Limits, few, gap, refuse_other_weights
from tasks.engines.sampling.transformers import TransformersGenerator
from tasks.rollouts import account_of
from tasks.sampling import sample_rollouts
from tasks.stage import Session, session
from tests.stages.training_lab import DRAW, START, Lab, lab, short

__all__ = ["lab"]


def test_other_weights_end_a_training_and_an_evaluation(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """With staleness too, whose rollouts are scored when the learner has moved on."""
    learner = short(groups_per_step=8, learning_rate=5e-2)
    lab.train(replace(learner, staleness=1), evaluation_group_size=1)
    made = lab.train(learner, evaluation_group_size=1)
    assert 0 < float(lab.notes(made)["logprob_gap"]) < EXACT.doubtful
    after = replace(START, adapter=str(made), adapter_step=2, step=2)

    def evaluate(sampling: Sampling) -> None:
        how: dict[str, Any] = {"policy": after, "training": made, "group_size": 4, "split": "heldout", "lora_rank": 4}
        sample_rollouts(pool=lab.pool, splits=lab.splits, **how, sampling=sampling)

    serve = TransformersGenerator._policy
    with monkeypatch.context() as patched:
        patched.setattr(TransformersGenerator, "_policy", lambda self, adapter: serve(self, None))
        for staleness in (0, 1):
            with pytest.raises(
                UserError, match=r"panel at step .: transformers does not sample with the learner's weights.* the base"
            ):
                lab.train(replace(learner, staleness=staleness, seed=1), evaluation_group_size=1)
        with pytest.raises(UserError, match="panel at step 2: transformers does not sample with the learner's weights"):
            evaluate(replace(DRAW, seed=5))
        assert Ledger(lab.store.root).read(account_of(after, replace(DRAW, seed=5))) is None
    evaluate(replace(DRAW, seed=6))
    assert Ledger(lab.store.root).read(account_of(after, replace(DRAW, seed=6))) is not None


class Killed(BaseException):
    """The end of the process, as far as the store can see."""


@pytest.mark.parametrize("right", [True, False])
def test_rollouts_are_stored_before_they_are_checked(lab: Lab, monkeypatch: pytest.MonkeyPatch, right: bool) -> None:
    """A process that is killed at the check loses none. The next one checks them, and deletes them if they are wrong."""
    made, ledger = lab.train(short(groups_per_step=8, learning_rate=5e-2)), Ledger(lab.store.root)
    sampling = replace(DRAW, seed=7)
    after = replace(START, adapter=str(made), adapter_step=2, step=2)
    account = account_of(after, sampling)
    how: dict[str, Any] = {"policy": after, "training": made, "group_size": 4, "split": "heldout", "lora_rank": 4}

    def evaluate() -> Any:
        with session(Session(lab.store, lab.toolbox)):
            return sample_rollouts(pool=lab.pool, splits=lab.splits, sampling=sampling, **how)

    def killed(*_: object) -> float:
        raise Killed

    serve = TransformersGenerator._policy
    with monkeypatch.context() as patched:
        patched.setattr("tasks.rollouts.refuse_other_weights", killed)
        if not right:
            patched.setattr(TransformersGenerator, "_policy", lambda self, adapter: serve(self, None))
        with pytest.raises(Killed):
            evaluate()
    (held,) = ledger.unchecked(account)
    assert ledger.read(account) is None
    lab.toolbox.first = None
    if not right:
        with pytest.raises(UserError, match="does not sample with the learner's weights"):
            evaluate()
        assert not held.exists() and ledger.read(account) is None
    notes = lab.notes(evaluate())
    rows = ledger.read(account)
    assert rows is not None and ledger.duplicates(account) == 0 and not ledger.unchecked(account)
    assert int(notes.get("sampled_rollouts", 0)) == (0 if right else rows.num_rows)


def test_one_name_for_other_files_is_another_adapter(tmp_path: Path) -> None:
    names = set()
    for arm in ("panel", "thinking"):
        folder = tmp_path / arm
        folder.mkdir()
        (folder / "adapter_model.safetensors").write_bytes(b"weights")
        names |= {served_name(ServedAdapter("step 1", folder)), served_name(ServedAdapter("step 1", folder))}
    (folder / "adapter_model.safetensors").write_bytes(b"others")
    assert len(names) == 2 and served_name(ServedAdapter("step 1", folder)) not in names


def rows(count: int, apart: float, tokens: int = 40) -> list[tuple[Sampling, dict[str, Any]]]:
    """Rollouts whose log-probs are `apart` from -1, as rounding spreads them."""
    noise = np.random.default_rng(0).normal(0, apart, (count, tokens)).astype(np.float32)
    return [(DRAW, {"prompt_ids": [1, 2], "token_ids": list(range(tokens)), "logprobs": row_T - 1}) for row_T in noise]


@pytest.mark.parametrize(
    ("limits", "apart", "of_base", "refused"),
    [
        (ROUNDED, 0.03, 0.0, False),  # the most that was measured in bfloat16, and a base model that fits perfectly
        (ROUNDED, 0.09, 0.09, False),  # doubtful, and the base model fits no better
        (ROUNDED, 0.09, 0.03, True),
        (ROUNDED, 0.25, 0.25, True),
        (EXACT, 1e-4, 0.0, False),
        (EXACT, 0.05, 0.05, True),
    ],
)
def test_limits(limits: Limits, apart: float, of_base: float, refused: bool) -> None:
    sampled = few(rows(32, apart))
    assert sampled is not None and len(sampled.behaviour_K) >= 512

    check(sampled, np.full(len(sampled.behaviour_K), -1.0), of_base, limits, refused)


def check(sampled: Any, learned_K: np.ndarray, of_base: float, limits: Limits, refused: bool) -> None:
    def score(groups: list[PromptGroup], temperature: float, *, base: bool = False) -> np.ndarray:
        return sampled.behaviour_K + np.float32(of_base) if base else learned_K

    if refused:
        with pytest.raises(UserError, match="does not sample with the learner's weights"):
            refuse_other_weights(sampled, score, limits, "panel", "vllm")  # type: ignore[arg-type]
    else:
        found = refuse_other_weights(sampled, score, limits, "panel", "vllm")  # type: ignore[arg-type]
        assert found == gap(sampled, learned_K)
