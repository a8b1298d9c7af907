"""Prompts and completions token by token: BOS, EOS, dates, end tokens and stops, alike in every engine."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from storage.errors import UserError
from tasks.domain.scaffolds import PANEL, THINKING, Scaffold
from tasks.engines.hardware import Hardware
from tasks.engines.protocols import Completion, Decoding, Request
from tasks.engines.sampling import transformers as engine
from tasks.engines.sampling.prompts import (
    EndTokens,
    default_system_prompt,
    encode_prompt,
    opens_trace,
    refuse_leaked_problems,
)
from tasks.engines.sampling.transformers import TransformersGenerator
from tasks.engines.sampling.vllm import graph_sizes, step_tokens
from tests.tiny_model import DEMO, write_tiny_mixture, write_tiny_model

DATED = "{{ strftime_now('%d %b %Y') }}: {{ messages[0]['content'] }}"


@pytest.fixture
def tokenizer() -> Any:
    made = AutoTokenizer.from_pretrained(DEMO)
    made.add_special_tokens({"bos_token": "<bos>"})
    return made


def plain(tokenizer: Any, text: str) -> list[int]:
    return list(encode_prompt(tokenizer, replace(PANEL, template="{problem}"), text))


@pytest.mark.parametrize("frame", ["<bos> $A", "<bos> $A {eos}", "$A {eos}", "$A"])
def test_a_plain_prompt_has_one_bos_and_no_eos(tokenizer: Any, frame: str) -> None:
    bare = tokenizer("What is 1+1?", add_special_tokens=False)["input_ids"]
    special = [(t, tokenizer.convert_tokens_to_ids(t)) for t in ("<bos>", tokenizer.eos_token)]
    single = frame.format(eos=tokenizer.eos_token)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=special)
    bos = [tokenizer.bos_token_id] if "<bos>" in frame else []
    assert plain(tokenizer, "What is 1+1?") == [*bos, *bare]
    assert plain(tokenizer, "<bos>What is 1+1?") == [tokenizer.bos_token_id, *bare]


def test_a_template_with_todays_date_writes_the_same_one_every_day(tokenizer: Any) -> None:
    tokenizer.chat_template = DATED
    ids = encode_prompt(tokenizer, replace(THINKING, template="{problem}"), "hello")
    assert list(ids) == tokenizer("26 Jul 2024: hello", add_special_tokens=False)["input_ids"]


#: The system prompt of a template as Qwen2.5 and SmolLM2 have it.
DEFAULT = "{% if messages[0]['role'] != 'system' %}[You are a model.]{% endif %}"
TURNS = "{% for m in messages %}[{{ m['role'] }}: {{ m['content'] }}]{% endfor %}"


def test_a_system_message_replaces_the_templates_own(tokenizer: Any) -> None:
    def text(scaffold: Scaffold) -> str:
        return tokenizer.decode(encode_prompt(tokenizer, scaffold, "1+1?"))

    plain = replace(THINKING, template="{problem}")
    tokenizer.chat_template = DEFAULT + TURNS
    assert text(plain) == "[You are a model.][user: 1+1?]" and default_system_prompt(tokenizer)
    assert text(replace(plain, system="Be brief.")) == "[system: Be brief.][user: 1+1?]"
    assert text(replace(plain, system="")) == "[system: ][user: 1+1?]"
    tokenizer.chat_template = TURNS
    assert not default_system_prompt(tokenizer)


def test_every_end_token_of_the_model_is_cut(tokenizer: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(DEMO, tmp_path / "model"))
    other = tokenizer.bos_token_id
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [tokenizer.eos_token_id, other]}))
    ends = EndTokens(tokenizer, folder)
    for end in (tokenizer.eos_token_id, other):
        assert ends.without("<answer>7</answer>" + tokenizer.decode([end]), [5, end]) == "<answer>7</answer>"
    assert ends.without("7", [5]) == "7"
    (folder / "generation_config.json").unlink()
    assert EndTokens(tokenizer, folder).ids == {tokenizer.eos_token_id}


def drawn(monkeypatch: pytest.MonkeyPatch, ids: list[int], stop: str) -> Completion:
    """What the reference engine makes of these tokens, whatever the model says."""
    left = iter(ids)
    choose: Callable[..., Any] = lambda *_: (next(left), -1.0)  # noqa: E731
    monkeypatch.setattr(engine, "_draw", choose)
    generator = TransformersGenerator(DEMO, Hardware(device="cpu"))
    request = Request(0, (5, 6, 7), 0, Decoding(max_tokens=len(ids), stop=(stop,)))
    return next(iter(generator.generate([request], None)))


def test_a_stop_is_cut_where_it_ends_and_seen_however_long_it_is(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by vLLM: within a token, and over more than 16 of them."""
    torch.manual_seed(0)
    ids = tokenizer("12 + 34 = 46 and 5 * 6 = 30 and 7 - 8 = 1, then 9.", add_special_tokens=False)["input_ids"]
    text = tokenizer.decode(ids)
    within = next(i for i in range(4, len(ids)) if len(tokenizer.decode([ids[i]])) > 1)
    until = tokenizer.decode(ids[:within]) + tokenizer.decode([ids[within]])[:1]
    assert drawn(monkeypatch, ids, until[-3:]).text.endswith(until[-3:])
    long = text[:-2]
    assert len(tokenizer(long, add_special_tokens=False)["input_ids"]) > 17
    found = drawn(monkeypatch, ids, long)
    assert (found.text, found.finish) == (long, "stop")


@pytest.mark.parametrize(
    ("end", "opened"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<think>\n\n</think>\n\n", False),
        ("<|im_start|>assistant\n", False),
    ],
)
def test_a_chat_template_that_opens_the_trace_is_noticed(end: str, opened: bool, tmp_path: Path) -> None:
    text = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}" + end + "{% endif %}"
    folder = Path(shutil.copytree(DEMO, tmp_path / "model"))
    (folder / "chat_template.jinja").write_text(text)
    assert opens_trace(folder, THINKING) is opened
    assert opens_trace(folder, PANEL) is None and opens_trace(tmp_path / "nowhere", THINKING) is None


# Self-certainty by the definition: the divergence of the uniform distribution from each token's, and its mean.


SAMPLED = [([5, 6, 7], [8, 9]), ([10, 11], [12, 13, 14, 15]), ([20], [21])]


def test_a_self_certainty_is_the_mean_divergence_from_the_uniform_distribution(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    write_tiny_model(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    found = TransformersGenerator(tmp_path, Hardware()).certainties(SAMPLED, None)
    for (prompt, completion), certainty in zip(SAMPLED, found, strict=True):
        divergences = []
        for place in range(len(completion)):
            with torch.no_grad():
                logits = model(torch.tensor([prompt + completion[:place]])).logits[0, -1]
            log_p = torch.log_softmax(logits, -1)
            uniform = torch.full_like(log_p, 1 / len(log_p))
            divergences.append(float(torch.nn.functional.kl_div(log_p, uniform, reduction="sum")))
        assert certainty == pytest.approx(sum(divergences) / len(divergences), rel=1e-4) and certainty > 0
    assert len(set(found)) == len(SAMPLED)


# A mixture of experts by vLLM on a CPU: sampled as transformers reads it, and refused with a hole.


@pytest.mark.slow
def test_vllm_samples_a_mixture_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its newer model runner, which a GPU is asked for, has no kernels there and was a traceback."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    from transformers import AutoModelForCausalLM

    from tasks.engines.sampling.vllm import VllmGenerator

    folder = write_tiny_mixture(tmp_path / "moe")
    made = VllmGenerator(folder, Hardware(kv_cache_mb=64, max_model_len=256), 0)
    requests = [Request(i, tuple(range(5, 15 + i)), i, Decoding(max_tokens=12)) for i in range(4)]
    completions = sorted(made.generate(requests, None), key=lambda c: c.key)
    made.close()
    model = AutoModelForCausalLM.from_pretrained(folder)
    for request, completion in zip(requests, completions, strict=True):
        ids = torch.tensor([[*request.prompt_ids, *completion.token_ids]])
        with torch.no_grad():
            logprobs = model(ids).logits[0, len(request.prompt_ids) - 1 : -1].float().log_softmax(-1)
        known = logprobs.gather(1, ids[0, len(request.prompt_ids) :, None]).squeeze(1).numpy()
        assert len(completion.token_ids) > 0
        assert np.abs(known - completion.logprobs_T).max() < 1e-4


# Which batches have CUDA graphs, and what an engine is not started with.


def test_a_full_batch_has_one_of_its_own_and_room_for_prompts_beside_it() -> None:
    """100 rollouts decode by a graph of 100; while as many tokens of prompts are computed, by one of at most 512."""
    for at_once in (100, 512, 1024):
        hardware = Hardware(max_num_seqs=at_once)
        sizes = graph_sizes(hardware)
        assert at_once in sizes and sizes[-1] == step_tokens(hardware) >= 2 * at_once
    assert step_tokens(Hardware(max_num_seqs=100)) == 512


# A prompt that contains a whole problem of the pool is refused, however the problem ends.


SHOWN = [
    ("Which is prime? (A) 4 (B) 5 (C) 6", "Which is prime? (A) 4 (B) 5 (C) 6 Answer: B"),
    ("What is the value of 5!", "What is the value of 5! Answer: 120"),
    ("What is 15 + 27", "What is 15 + 27 -> 42"),
    ("A list has three numbers. What is it?", "1.A list has three numbers. What is it? 3"),
]
OTHERS = [
    ("What is 12 + 5?", r"What is 12 + 5 \times 3?"),
    ("10 + 20 + 30 =", "5 * 10 + 20 + 30 ="),
    ("Сколько будет пять плюс семь?", "Сколько будет пять плюс семьдесят?"),
]


@pytest.mark.parametrize(("problem", "words"), [*SHOWN, *OTHERS])
def test_a_prompt_with_a_whole_problem_is_refused(problem: str, words: str) -> None:
    scaffold = replace(PANEL, template=f"{words}\n{{problem}}")
    if (problem, words) in OTHERS:
        return refuse_leaked_problems(scaffold, [problem])
    with pytest.raises(UserError, match="a problem of the pool"):
        refuse_leaked_problems(scaffold, [problem])
