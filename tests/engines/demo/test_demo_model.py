"""The demo's checkpoint as it is shipped, and the command that makes it again."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from tasks.domain.problems.arithmetic import demo_problems, pretraining_problem
from tasks.domain.problems.teacher import MIX, teacher_completion
from tasks.domain.scaffolds import SCAFFOLDS
from tasks.engines.demo.pretrain import TAGS, PretrainConfig, make_tokenizer, pretrain
from tasks.engines.sampling.prompts import encode_prompt

MODEL = Path(__file__).resolve().parents[3] / "models" / "demo"
TINY = PretrainConfig(steps=3, batch_size=2, hidden=32, layers=1, heads=2, head_dim=16, mlp=32)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(MODEL)


def test_checkpoint_is_small_and_whole() -> None:
    files = {f.name: f.stat().st_size for f in MODEL.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json", "README.md"} <= set(files)
    assert sum(files.values()) <= 4 << 20


def test_checkpoint_loads_and_its_vocabulary_is_the_tokenizers(tokenizer) -> None:
    model = AutoModelForCausalLM.from_pretrained(MODEL)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert model.config.vocab_size == len(tokenizer) <= 700
    assert 3e5 < sum(p.numel() for p in model.parameters()) < 1e6
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id != tokenizer.pad_token_id


def test_tokenizer_is_the_one_that_the_code_makes(tokenizer) -> None:
    config = PretrainConfig()
    assert make_tokenizer(config.vocabulary, config.seed).get_vocab() == tokenizer.get_vocab()


def test_tags_are_single_tokens(tokenizer) -> None:
    assert {len(tokenizer(tag)["input_ids"]) for tag in TAGS} == {1}


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


def test_any_text_survives(tokenizer) -> None:
    for text in ("a  b\n\tç 数学 🙂", "  12 +3.5=x", "<answer></answer"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_chat_template_honours_enable_thinking(tokenizer) -> None:
    turns = [{"role": "user", "content": "2+2?"}]
    said = {
        on: tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, enable_thinking=on)
        for on in (True, False)
    }
    assert said[True] == "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    assert said[False] == said[True] + "<think>\n\n</think>\n\n"


@pytest.mark.slow
def test_pretraining_makes_the_same_weights_twice(tmp_path: Path) -> None:
    made = pretrain(TINY, tmp_path / "a", threads=1)
    pretrain(TINY, tmp_path / "b", threads=1)
    digests = {hashlib.sha256((tmp_path / n / "model.safetensors").read_bytes()).hexdigest() for n in ("a", "b")}
    assert len(digests) == 1
    assert (made.steps, made.threads) == (3, 1)
    assert 0 < made.loss < 10
