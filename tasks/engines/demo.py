"""The demo's base model: a small Qwen3 pretrained on the teacher's solutions. Its card is models/demo/README.md.

    python -m tasks.engines.demo OUT [--steps N] [--seed N]

makes it in about six minutes. Prompts are exactly what the arms send, so nothing about the demo's arms is special. In
the tokenizer digits, the scaffolds' tags and the fixed pieces of their prompt templates are single tokens: a prompt and
its completion take about 70 tokens, 200 at most, which is what makes a CPU enough.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.domain.problems.arithmetic import ArithmeticProblem, Step, apply, pretraining_problem
from tasks.domain.scaffolds import SCAFFOLDS
from tasks.engines.environment import quiet_libraries
from tasks.engines.hardware import keep_freed_memory

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM


IGNORED = -100
EOS, PAD, TURN = "<|im_end|>", "<|endoftext|>", "<|im_start|>"
TAGS = ("<mutipersonaDebate>", "</mutipersonaDebate>", "<think>", "</think>", "<answer>", "</answer>", "\\boxed{")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
#: Words keep the space before them, a speaker the colon and space behind; digits stand alone.
WORDS = r" ?\p{L}+(: )?|\p{N}|[^\p{L}\p{N}]+"


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainConfig:
    """All settings that determine the checkpoint.

    decay_from: share of the steps after which the learning rate falls to zero.
    vocabulary: at most this many tokens, before the added ones.
    """

    steps: int = 3000
    batch_size: int = 32
    learning_rate: float = 3e-3
    warmup: int = 100
    decay_from: float = 0.4
    seed: int = 0
    vocabulary: int = 512
    hidden: int = 96
    layers: int = 3
    heads: int = 3
    head_dim: int = 32
    mlp: int = 288
    positions: int = 1024


def make_model(config: PretrainConfig, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    from transformers import Qwen3Config, Qwen3ForCausalLM, set_seed

    set_seed(config.seed)
    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": 1,
        "head_dim": config.head_dim,
        "intermediate_size": config.mlp,
        "max_position_embeddings": config.positions,
        "tie_word_embeddings": True,
        "eos_token_id": tokenizer.get_vocab()[EOS],
        "pad_token_id": tokenizer.get_vocab()[PAD],
        "bos_token_id": None,
        "initializer_range": 0.05,
    }
    return Qwen3ForCausalLM(Qwen3Config(**shape))


def pretrain(
    config: PretrainConfig,
    out: Path,
    threads: int = 2,
    progress: Callable[[int, float], None] = lambda step, loss: None,
) -> float:
    """Write a model folder that transformers and vLLM load. Return the smoothed loss, in nats a completion token.

    Deterministic on the CPU for a given seed, number of threads and build of torch.
    """
    import torch

    keep_freed_memory()
    torch.set_num_threads(threads)
    tokenizer = make_tokenizer(config.vocabulary, config.seed)
    model = make_model(config, tokenizer).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    rng = random.Random(f"pretraining/{config.seed}")
    smooth = 0.0
    for step in range(config.steps):
        for group in optimiser.param_groups:
            group["lr"] = config.learning_rate * _schedule(step, config)
        loss = _loss(model, *_batch(rng, tokenizer, config.batch_size))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        smooth = loss.item() if step == 0 else 0.99 * smooth + 0.01 * loss.item()
        progress(step + 1, smooth)
    _save(model, tokenizer, out)
    return smooth


def _schedule(step: int, config: PretrainConfig) -> float:
    """Warm-up, then constant, then a cosine to zero."""
    start = config.steps * config.decay_from
    decayed = max(0.0, (step - start) / (config.steps - start))
    return min(1.0, (step + 1) / config.warmup) * 0.5 * (1 + math.cos(math.pi * decayed))


def _batch(rng: random.Random, tokenizer: Any, size: int) -> tuple[Any, Any]:
    """(ids_BL, targets_BL), padded on the right; targets are the completion's tokens and its end, nothing else."""
    import torch

    from tasks.engines.sampling.prompts import encode_prompt

    rows: list[tuple[list[int], int]] = []
    for scaffold in rng.choices(list(MIX), weights=list(MIX.values()), k=size):
        problem, arm = pretraining_problem(rng), SCAFFOLDS[scaffold]
        prompt = encode_prompt(tokenizer, arm.prompt(problem.text), chat=arm.chat, enable_thinking=arm.enable_thinking)
        completion = tokenizer(teacher_completion(problem, scaffold, rng))["input_ids"]
        rows.append(([*prompt, *completion, tokenizer.eos_token_id], len(prompt)))
    width = max(len(ids) for ids, _ in rows)
    ids_BL = torch.full((size, width), tokenizer.pad_token_id)
    targets_BL = torch.full((size, width), IGNORED)
    for row, (ids, start) in enumerate(rows):
        ids_BL[row, : len(ids)] = torch.tensor(ids)
        targets_BL[row, start : len(ids)] = ids_BL[row, start : len(ids)]
    return ids_BL, targets_BL


def _loss(model: Any, ids_BL: Any, targets_BL: Any) -> Any:
    """Mean cross-entropy over completion tokens. Padding is on the right, so the causal mask alone hides it."""
    from torch.nn.functional import cross_entropy

    hidden_BLD = model.model(input_ids=ids_BL, use_cache=False).last_hidden_state[:, :-1]
    wanted_BL = targets_BL[:, 1:]
    learnt_BL = wanted_BL != IGNORED
    return cross_entropy(model.lm_head(hidden_BLD[learnt_BL]), wanted_BL[learnt_BL])


def _save(model: Any, tokenizer: Any, out: Path) -> None:
    from transformers import GenerationConfig

    out.mkdir(parents=True, exist_ok=True)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True, temperature=1.0
    )
    model.eval().save_pretrained(out)
    tokenizer.save_pretrained(out)


def make_tokenizer(vocabulary: int, seed: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE; tags and the templates' fixed pieces are added tokens, so the vocabulary is a little larger."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(WORDS), "isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([split, as_bytes])
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, TURN, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(_corpus(seed), trainer)
    core.add_tokens([AddedToken(text, special=False, normalized=False) for text in (*TAGS, *_fixed_pieces())])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=EOS, pad_token=PAD, clean_up_tokenization_spaces=False, model_max_length=1024
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _corpus(seed: int) -> Iterator[str]:
    """Problems and traces, without the tags: those are tokens already."""
    rng = random.Random(f"tokenizer/{seed}")
    for _ in range(4000):
        problem = pretraining_problem(rng)
        yield problem.text
        for scaffold in MIX:
            yield SCAFFOLDS[scaffold].parse(teacher_completion(problem, scaffold, rng)).trace or ""


def _fixed_pieces() -> list[str]:
    """Return the text before and after the problem in each template, if it is longer than a few characters."""
    pieces = {p for s in SCAFFOLDS.values() for p in s.template.split("{problem}") if len(p) > 4}
    return sorted(pieces, key=lambda p: (-len(p), p))


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m tasks.engines.demo", description="Pretrain the demo's base model.")
    words.add_argument("out", type=Path)
    words.add_argument("--steps", type=int, default=PretrainConfig().steps)
    words.add_argument("--seed", type=int, default=PretrainConfig().seed, help="Of the weights and of the data.")
    given = words.parse_args()
    if (given.out / "model.safetensors").exists():
        words.error(f"{given.out}: a model is there already; name another folder")
    quiet_libraries()
    config = replace(PretrainConfig(), steps=given.steps, seed=given.seed)
    pretrain(config, given.out, 2, lambda step, loss: print(f"step {step} of {config.steps}: {loss:.3f} nats"))


if __name__ == "__main__":
    main()

# The teacher for pretraining the demo model: worked solutions in every scaffold's form, with mistakes.

CAREFUL_VOICES, HASTY_VOICE = ("Ann", "Bo"), "Cy"
HASTE_OF_LEVEL = {1: 0.15, 2: 0.4, 3: 0.6, 4: 0.8, 5: 0.8}
HASTY_SLIP, CAREFUL_SLIP, MENDED = 0.45, 0.01, 0.15
#: Shares of the pretraining mix: mostly the trained arms, and enough of the controls to sample from them.
MIX = {"panel": 0.43, "thinking": 0.43, "no_panel": 0.07, "think_tags": 0.07}


def teacher_completion(problem: ArithmeticProblem, scaffold: str, rng: random.Random, *, slips: bool = True) -> str:
    """Return a completion in the form of `scaffold`; without `slips` its answer is the gold."""
    value, spoken = problem.steps[0].left, []
    for planned in problem.steps:
        step = Step(value, planned.op, planned.right)
        hasty = rng.random() < HASTE_OF_LEVEL[problem.level]
        slipped = slips and rng.random() < (HASTY_SLIP if hasty else CAREFUL_SLIP)
        value = _slip(step, rng) if slipped else step.value
        spoken.append(_say(scaffold, step, value, hasty, rng))
        if slipped and rng.random() < MENDED:
            value = step.value
            spoken.append(_mend(scaffold, step, rng))
    return SCAFFOLDS[scaffold].answer_in_form(str(value), " ".join(spoken))


def _say(scaffold: str, step: Step, value: int, hasty: bool, rng: random.Random) -> str:
    question = f"{step.left}{step.op}{step.right}"
    if scaffold == "panel":
        voice = HASTY_VOICE if hasty else rng.choice(CAREFUL_VOICES)
        return f"{voice}: {question}={value}."
    return f"{question}={value}." if hasty else f"{question}: {written_out(step)}={value}."


def _mend(scaffold: str, step: Step, rng: random.Random) -> str:
    who = f"{rng.choice(CAREFUL_VOICES)}: no, " if scaffold == "panel" else "Wait, "
    return f"{who}{step.left}{step.op}{step.right}={step.value}."


def written_out(step: Step) -> str:
    """Return the derivation of a step: split at the tens, at the last multiple, or into a smaller product.

    >>> [written_out(s) for s in (Step(17, "+", 6), Step(23, "-", 4), Step(4, "*", 6), Step(23, " mod ", 5))]
    ['20+3', '20-1', '18+6', '23-20']
    """
    left, right, value = step.left, step.right, step.value
    tens = value // 10 * 10
    match step.op:
        case "*":
            return f"{value - right}+{right}"
        case " mod ":
            return f"{left}-{left - value}"
        case "-" if tens + 10 <= left:
            return f"{tens + 10}-{tens + 10 - value}"
    return f"{tens}+{value - tens}"


def _slip(step: Step, rng: random.Random) -> int:
    """Return a typical wrong value: off by one, off by ten, or from the other operation."""
    other = apply(step.left, {"+": "-", "-": "+"}.get(step.op, "+"), step.right)
    near = (step.value - 1, step.value + 1, step.value - 10, step.value + 10, other)
    return rng.choice([c for c in (max(n, 0) for n in near) if c != step.value])
