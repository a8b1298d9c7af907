"""The demo model's tokenizer, made for the scaffolds' texts.

Digits, the scaffolds' tags and the fixed pieces of their prompt templates are single tokens: a prompt and its
completion take about 70 tokens, 200 at most, which is what makes a CPU enough.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tasks.domain.problems.arithmetic import pretraining_problem
from tasks.domain.problems.teacher import MIX, teacher_completion
from tasks.domain.scaffolds import SCAFFOLDS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

EOS, PAD, TURN = "<|im_end|>", "<|endoftext|>", "<|im_start|>"
TAGS = ("<mutipersonaDebate>", "</mutipersonaDebate>", "<think>", "</think>", "<answer>", "</answer>", "\\boxed{")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
#: Words keep the space before them, a speaker the colon and space behind; digits stand alone.
WORDS = r" ?\p{L}+(: )?|\p{N}|[^\p{L}\p{N}]+"


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


def _corpus(seed: int, n: int = 4000) -> Iterator[str]:
    """Problems and traces, without the tags: those are tokens already."""
    rng = random.Random(f"tokenizer/{seed}")
    for _ in range(n):
        problem = pretraining_problem(rng)
        yield problem.text
        for scaffold in MIX:
            yield SCAFFOLDS[scaffold].parse(teacher_completion(problem, scaffold, rng)).trace or ""


def _fixed_pieces() -> list[str]:
    """What stands before and after the problem in each template, where it is longer than a few characters."""
    pieces = {p for s in SCAFFOLDS.values() for p in s.template.split("{problem}") if len(p) > 4}
    return sorted(pieces, key=lambda p: (-len(p), p))
