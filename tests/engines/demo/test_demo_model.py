"""The demo's checkpoint as it is shipped, and the command that makes it again."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tasks.domain.problems.arithmetic import demo_problems, pretraining_problem
from tasks.domain.problems.teacher import MIX, teacher_completion
from tasks.domain.scaffolds import SCAFFOLDS
from tasks.engines.demo import PretrainConfig, make_tokenizer, pretrain
from tasks.engines.sampling.prompts import encode_prompt

MODEL = Path(__file__).resolve().parents[3] / "models" / "demo"
TINY = PretrainConfig(steps=3, batch_size=2, hidden=32, layers=1, heads=2, head_dim=16, mlp=32)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(MODEL)


def test_tokenizer_is_the_one_that_the_code_makes(tokenizer) -> None:
    config = PretrainConfig()
    assert make_tokenizer(config.vocabulary, config.seed).get_vocab() == tokenizer.get_vocab()


def test_text_survives_the_tokenizer_and_sequences_are_short(tokenizer) -> None:
    rng = random.Random(5)
    for problem in [p["problem"] for p in demo_problems(10, 1)]:
        for s in SCAFFOLDS.values():
            ids = encode_prompt(tokenizer, s.prompt(problem), chat=s.chat, enable_thinking=s.enable_thinking)
            text = tokenizer.decode(ids)
            assert s.prompt(problem) in text
            assert len(ids) <= 72
    for arm in MIX:
        completion = teacher_completion(pretraining_problem(rng), arm, rng)
        ids = tokenizer(completion)["input_ids"]
        assert tokenizer.decode(ids) == completion
        assert len(ids) <= 128


@pytest.mark.slow
def test_pretraining_makes_the_same_weights_twice(tmp_path: Path) -> None:
    losses = {pretrain(TINY, tmp_path / name, threads=1) for name in ("a", "b")}
    digests = {hashlib.sha256((tmp_path / n / "model.safetensors").read_bytes()).hexdigest() for n in ("a", "b")}
    assert len(digests) == len(losses) == 1 and 0 < losses.pop() < 10
