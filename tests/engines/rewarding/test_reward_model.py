"""Reward models of random weights: what is scored is what transformers says of the text alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.engines import rewarding
from tasks.engines.hardware import Hardware
from tasks.engines.rewarding import BATCH_TOKENS, RewardModel
from tests.tiny_model import write_tiny_model

TEXTS = [(f"What is {n}+1?", "so " * (17 * n % 40) + f"it is {n}", n % 2 == 0) for n in range(30)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("reward"), labels=1)


@pytest.fixture(scope="module")
def model(folder: Path) -> RewardModel:
    return RewardModel(folder, Hardware())


def test_a_score_is_that_of_the_text_alone_whatever_is_scored_beside_it(folder: Path, model: RewardModel) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    plain = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    found = model.score(TEXTS)
    assert sum(one.tokens for one in found) > BATCH_TOKENS["cpu"] / 2
    for (problem, written, _), reading in zip(TEXTS, found, strict=True):
        ids = tokenizer(f"<|user|>{problem}<|user|>{written}", add_special_tokens=False, return_tensors="pt")[
            "input_ids"
        ]
        with torch.no_grad():
            logit = plain(input_ids=ids).logits[0, 0]
        assert reading.tokens == ids.shape[1]
        assert reading.score == pytest.approx(float(torch.sigmoid(logit)), abs=1e-4)
    assert len({one.score for one in found}) > 10


def test_a_score_is_the_same_to_the_bit_in_any_company(model: RewardModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that was killed meets its texts in other company, and asks for what their scores say."""
    monkeypatch.setattr(rewarding, "DIGITS", 17)
    assert [model.score([text])[0] for text in TEXTS] == model.score(TEXTS) == model.score(TEXTS[::-1])[::-1]


def test_an_end_of_text_is_read_though_it_is_what_pads(model: RewardModel) -> None:
    """The tokenizer pads with its end of text; a score is at the last token, whatever that is."""
    text, longer = "it is 1", "it is 1, as everybody can see who looks for long enough"
    whole, _ = model.score([("1?", text + "<|end|>", False), ("1?", longer, False)])
    bare, _ = model.score([("1?", text, False), ("1?", longer, False)])
    assert whole.tokens == bare.tokens + 1 and whole.score != bare.score
    assert model.score([("1?", text + "<|end|>", False)]) == [whole]
