"""What is read part by part is what is read at once."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from storage.artifacts.schemas import Calibrations, Embeddings, Rollouts
from storage.artifacts.store import Store
from tasks.domain.grading.grading import GRADER_VERSION
from tasks.domain.statistics.windows import REWORDED
from tasks.embedding import embedded
from tasks.engines.toolbox import Toolbox
from tasks.measures.diversity import ceilings_of, measure_ceilings
from tasks.partitions import partition_answers, partition_rollouts
from tasks.stage import Session, session
from tests.dashboards.made_up_rows import calibration_rows
from tests.dashboards.synthetic import put
from tests.measures.conftest import rows_of

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
