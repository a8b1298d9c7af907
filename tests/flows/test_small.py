"""Real input on a CPU: GSM8K problems, SmolLM2-135M, all-mpnet-base-v2, every stage; a short version of `varband run small`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from storage.artifacts.store import Store
from tasks.engines.encoding import SentenceEncoder
from tests import warm
from tests.mini import environment
from tests.needs import lacks

pytestmark = pytest.mark.slow

TOKENS = 40
SETTINGS = (
    "pool.heldout_per_source=3",
    "screening.group_size=2",
    "training.steps=1",
    "training.group_size=2",
    "evaluation.group_size=1",
    "final.group_size=2",
    "passk.ks=1,2",
    "passk.draws=200",
    f"screening.sampling.max_tokens={TOKENS}",
    f"rollouts.max_tokens={TOKENS}",
    f"evaluation.sampling.max_tokens={TOKENS}",
    f"final.sampling.max_tokens={TOKENS}",
)


def model_folder(shared: Path, kind: str) -> Path:
    """A real model's folder, made once and kept in the user's cache. Skips loudly where it cannot be made."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "varband" / "models" / kind
    made = subprocess.run(
        [sys.executable, str(shared / "offline" / "models.py"), kind, str(cache)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        lacks("shared", f"the model {kind} could not be made: {made.stderr[-500:]}")
    return cache


def test_every_stage_on_real_problems_with_real_models(shared: Path, tmp_path: Path) -> None:
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    words = ["run", "small", "--plain", "--json", "--root", str(tmp_path / "store"), "--limit", "10", *sets]
    words += ["--pool", str(shared / "data" / "gsm8k_test.jsonl")]
    words += ["--model", str(model_folder(shared, "smollm2")), "--encoder", str(model_folder(shared, "mpnet"))]
    done = warm.run([warm.VARBAND, *words], env=environment(), engine=True)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["made"] == result["stages"]
    store = Store(tmp_path / "store")
    assert {ref.kind for ref in store.refs()} >= {"pool", "rollouts", "training", "embeddings", "report"}
    assert store.read(store.refs("pool")[0]).num_rows == 10
    assert {row["step"] for ref in store.refs("training") for row in store.read(ref).to_pylist()} == {1}


def test_real_mpnet_sees_what_it_should(shared: Path) -> None:
    encoder = SentenceEncoder(model_folder(shared, "mpnet"), name="all-mpnet-base-v2", max_tokens=384)
    vectors, coverage = encoder.encode(
        ["Seven apples and three pears.", "Three pears and seven apples.", "stop " * 1000]
    )
    assert vectors.shape == (3, 768)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert vectors[0] @ vectors[1] > 0.8 > vectors[0] @ vectors[2]
    assert coverage.tolist()[:2] == [1.0, 1.0] and coverage[2] == pytest.approx(0.382)
