"""A reward model from a folder, which scores a problem with a (partial) answer.

A transformers model for sequence classification scores at the last token; for a process model that is the end of a
step. A judge may also be a causal language model that answers a yes-or-no question about the answer. The judge's score
is the probability of Yes against No as the next token (a generative verifier: Zhang et al. 2024, arXiv 2408.15240).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.errors import UserError
from tasks.engines.hardware import Hardware, quiet_libraries, settle_threads
from tasks.engines.model_files import TODAY, loaded, read_config, tokenizer_of

#: Most padded tokens of one forward pass, most texts of one, and the unit of padded widths.
BATCH_TOKENS = {"cpu": 4_096, "cuda": 65_536}
ROWS, WIDTHS = 16, 64
#: Digits of a score, which is rounded because the last bits differ between machines.
DIGITS = 4
#: The question for a judge without a rubric.
RUBRIC = "Is this solution correct?"


@dataclass(frozen=True, slots=True)
class Reading:
    """The result for one text. score: in [0, 1]; None if the text was not scored or is longer than the model's
    positions. tokens: number of tokens that were read."""

    score: float | None = None
    tokens: int = 0


def check_reward_model(folder: Path, *, judge: bool = False) -> bool:
    """Return whether the model is a causal language model, which only a judge may be. Raise UserError for a model that
    is neither that nor a sequence classifier, because transformers would give other models a head of random weights."""
    kinds = [str(kind) for kind in read_config(folder).get("architectures") or []]
    causal = judge and any(kind.endswith("ForCausalLM") for kind in kinds)
    if not causal and not any(kind.endswith("ForSequenceClassification") for kind in kinds):
        wanted = "sequence classification" + (" or a causal language model" if judge else "")
        raise UserError(
            f"reward model {folder}: its architecture is {', '.join(kinds) or 'unknown'}; use a model for {wanted}"
        )
    return causal


class RewardModel:
    def __init__(self, folder: Path, hardware: Hardware) -> None:
        causal = check_reward_model(folder, judge=True)
        quiet_libraries()
        settle_threads()
        import torch
        from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

        self._device = "cuda" if torch.cuda.is_available() and hardware.device != "cpu" else "cpu"
        dtype = torch.float32 if self._device == "cpu" else getattr(torch, hardware.dtype)
        self._tokenizer = tokenizer_of(folder)
        self._no_yes = no_and_yes(self._tokenizer, folder) if causal else None
        model: Any = loaded(AutoModelForCausalLM if causal else AutoModelForSequenceClassification, folder, dtype)
        if not causal and model.config.num_labels > 2:
            raise UserError(
                f"reward model {folder}: it has {model.config.num_labels} labels; a reward model has one label, or two"
            )
        self._model = model.to(self._device).eval()
        self._positions = getattr(model.config, "max_position_embeddings", None)

    def score(self, texts: Sequence[tuple[str, str, bool]], rubric: str = "") -> list[Reading]:
        """Return one score for each (problem, answer text, whether it has ended), in batches. rubric: the question for
        a causal model; a classifier reads it after the problem.

        The padded width depends on a text's own length, so that the other texts of the batch do not change its score. A
        resumed search scores its texts in other batches, and must make the same choices.
        """
        if self._no_yes:
            ids = [question_ids(self._tokenizer, problem, written, rubric or RUBRIC) for problem, written, _ in texts]
        else:
            about = f"\n\n{rubric}" if rubric else ""
            ids = [encoded(self._tokenizer, problem + about, written, ended) for problem, written, ended in texts]
        fits = [i for i, some in enumerate(ids) if self._positions is None or len(some) <= self._positions]
        found = [Reading()] * len(texts)
        by_width: dict[int, list[int]] = {}
        for i in fits:
            by_width.setdefault(self._width(len(ids[i])), []).append(i)
        for width, some in sorted(by_width.items()):
            rows = min(ROWS, max(1, BATCH_TOKENS[self._device] // width))
            for start in range(0, len(some), rows):
                self._read(some[start : start + rows], ids, found, (rows, width))
        return found

    def _width(self, length: int) -> int:
        """Return the padded width of a text of this length."""
        width = -(-length // WIDTHS) * WIDTHS
        return width if self._positions is None else min(width, self._positions)

    def _read(
        self, batch: Sequence[int], ids: Sequence[list[int]], found: list[Reading], shape: tuple[int, int]
    ) -> None:
        """Score one batch, padded to `shape` with copies of its first text."""
        import torch

        last = {ids[i][-1] for i in batch}
        # transformers scores the last token that is not padding; the tokenizer's own could be a text's end token
        pad = next(number for number in range(len(last) + 1) if number not in last)
        self._model.config.pad_token_id = pad
        ids_BL = torch.full(shape, pad)
        seen_BL = torch.zeros_like(ids_BL)
        for row, i in enumerate([*batch, *[batch[0]] * (shape[0] - len(batch))]):
            ids_BL[row, : len(ids[i])] = torch.tensor(ids[i])
            seen_BL[row, : len(ids[i])] = 1
        # of a causal model's logits, compute only those after the last token of each text
        ends_B = (seen_BL.sum(1) - 1).to(self._device)
        kept = {"logits_to_keep": ends_B} if self._no_yes else {}
        with torch.no_grad():
            out = self._model(input_ids=ids_BL.to(self._device), attention_mask=seen_BL.to(self._device), **kept)
        logits = out.logits.diagonal(dim1=0, dim2=1).T[:, self._no_yes] if self._no_yes else out.logits
        logits = logits.float().cpu()
        odds = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        for i, score in zip(batch, torch.sigmoid(odds).tolist(), strict=False):
            found[i] = Reading(round(score, DIGITS), len(ids[i]))

    def close(self) -> None:
        del self._model


def encoded(tokenizer: Any, problem: str, written: str, ended: bool) -> list[int]:
    """Return the token ids of a problem and an answer text in the tokenizer's chat template."""
    if tokenizer.chat_template is None:
        return tokenizer(f"{problem}\n\n{written}")["input_ids"]
    messages = [{"role": "user", "content": problem}, {"role": "assistant", "content": written}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, strftime_now=TODAY.strftime)
    if not ended:  # remove the template's end of an answer
        text = text[: text.rindex(written) + len(written)]
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def question_ids(tokenizer: Any, problem: str, written: str, question: str) -> list[int]:
    """Return the token ids of a yes-or-no question about an answer text, up to the beginning of the reply."""
    text = f"{problem}\n\nA solution:\n{written}\n\n{question} Reply with Yes or No only."
    if tokenizer.chat_template is None:
        return tokenizer(f"{text}\nReply:")["input_ids"]
    how = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": False}
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": text}], strftime_now=TODAY.strftime, **how)
    return tokenizer(prompt, add_special_tokens=False)["input_ids"]


def no_and_yes(tokenizer: Any, folder: Path) -> list[int]:
    """Return the first tokens of the replies No and Yes. Raise UserError if the two tokens are the same."""
    space = " " if tokenizer.chat_template is None else ""
    found = [tokenizer(space + word, add_special_tokens=False)["input_ids"][0] for word in ("No", "Yes")]
    if found[0] == found[1]:
        raise UserError(f"judge {folder}: its tokenizer starts Yes and No with the same token; use another model")
    return found
