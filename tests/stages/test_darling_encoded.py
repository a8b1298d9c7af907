"""DARLING whose ways are told apart by the encoder: a whole training with the demo's model and the demo's encoder."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from storage.artifacts.kinds import Calibrations, Training
from storage.ledger import Ledger
from tasks.domain.partitions.classes import by_trace
from tasks.domain.policies import Sampling
from tasks.engines.encoding import SentenceEncoder, labelled_sha256
from tasks.engines.hardware import Hardware
from tasks.engines.toolbox import Toolbox
from tasks.partitions import calibrate_partitions
from tasks.rollouts import account_of, ensure_rollouts
from tasks.stage import Session, session
from tasks.training import step_sampling, train_adapter
from tests.stages.test_calibration import DIGEST, FOLDER, NAME
from tests.stages.test_training import DEMO, EVALUATION, START, STILL, Lab, lab
from tests.stages.test_turns import elsewhere

__all__ = ["lab"]
#: Long enough for a trace to end.
WHOLE = Sampling(max_tokens=128, seed=2)
LEARNER = replace(STILL, groups_per_step=4, group_size=4, learning_rate=1e-3, advantage="darling_encoded")


def trained(lab: Lab) -> tuple[Training, Calibrations]:
    tools = Toolbox(
        Hardware(engine="transformers", device="cpu", threads=1), places={START.model.sha256: DEMO, DIGEST: FOLDER}
    )
    try:
        with session(Session(lab.store, tools)):
            known = calibrate_partitions(
                encoder=NAME, weights_sha256=DIGEST, max_tokens=256, labelled=labelled_sha256()
            )
            made = train_adapter(
                pool=lab.pool,
                splits=lab.splits,
                bands=None,
                start=START,
                learner=LEARNER,
                rollouts=WHOLE,
                evaluation=EVALUATION,
                evaluation_group_size=1,
                calibration=known,
            )
            return made, known
    finally:
        tools.close()


def classes_of_the_first_step(lab: Lab, known: Calibrations) -> list[int]:
    """How many ways the traces go of each problem with a right rollout, by the artifact's threshold, from the ledger;
    none at all is one too."""
    row = next(r for r in lab.store.read(known).to_pylist() if r["partition"] == "trace")
    rows = Ledger(lab.store.root).read(account_of(START, step_sampling(WHOLE, LEARNER.seed, 1)))
    assert rows is not None
    encoder = SentenceEncoder(FOLDER, name=NAME, max_tokens=256)
    found = []
    for problem in dict.fromkeys(rows["problem_id"].to_pylist()):
        own = [r for r in rows.to_pylist() if r["problem_id"] == problem]
        if not any(r["correct"] for r in own):
            continue
        traces = [r["trace"] for r in own]
        written = [trace for trace in traces if trace]
        ways = len(set(by_trace(encoder.encode(written)[0], row["threshold"]))) if written else 0
        found.append(ways + (len(written) < len(traces)))
    return found


def test_a_training_by_the_encoders_classes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of the encoder a step; the classes are those of the calibrated threshold; the calibration is an input."""
    calls: list[int] = []
    encode = SentenceEncoder.encode
    monkeypatch.setattr(SentenceEncoder, "encode", lambda self, texts: calls.append(len(texts)) or encode(self, texts))
    made, known = trained(lab)
    assert len(calls[-LEARNER.steps :]) == LEARNER.steps and all(0 < n <= 16 for n in calls[-LEARNER.steps :])
    assert lab.store.manifest(made).recipe.inputs["calibration"] == [str(known)]
    rows = pq.read_table(lab.store.files(made) / "diagnostics.parquet").to_pylist()
    told = {(row["step"], row["metric"]): row["value"] for row in rows}
    by_problem = classes_of_the_first_step(lab, known)
    assert told[1, "classes"] == pytest.approx(sum(by_problem) / len(by_problem))
    assert max(by_problem) > 1, "else the partition tells nothing apart"
    assert sum(row["updates"] for row in lab.store.read(made).to_pylist()) > 0


@pytest.mark.slow
def test_killed_between_two_steps_and_resumed_is_the_undisturbed_run(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(1, 99))

    def dying(*given: object, **others: object) -> object:
        done = ensure_rollouts(*given, **others)  # type: ignore[arg-type]
        if next(calls) == 2:
            raise KeyboardInterrupt
        return done

    with monkeypatch.context() as patched:
        patched.setattr("tasks.training.ensure_rollouts", dying)
        with pytest.raises(KeyboardInterrupt):
            trained(lab)
    resumed = weights(lab, trained(lab)[0])
    lab.store = elsewhere(lab)
    assert weights(lab, trained(lab)[0]) == resumed


def weights(lab: Lab, made: Training) -> bytes:
    return (lab.store.files(made) / "step-0002" / "adapter_model.safetensors").read_bytes()
