"""A reward model from a folder: a transformers model for sequence classification that scores a problem with a (partial)
answer at the last token. For a process model that is the end of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.errors import UserError
from tasks.engines.environment import quiet_libraries, settle_threads
from tasks.engines.hardware import Hardware
from tasks.engines.loading import loaded, tokenizer_of
from tasks.engines.model_files import TODAY, read_config

#: Padded tokens of one forward pass; its largest number of texts; the unit of padded widths.
BATCH_TOKENS = {"cpu": 4_096, "cuda": 65_536}
ROWS, WIDTHS = 16, 64
#: Digits of a score, because the last bits differ between machines.
DIGITS = 4


@dataclass(frozen=True, slots=True)
class Reading:
    """The result for one text. score: in [0, 1]; None if the text was not scored or has more tokens than the model's
    positions. tokens: read."""

    score: float | None = None
    tokens: int = 0


def check_reward_model(folder: Path) -> None:
    """Raise UserError unless the folder has a sequence classifier; transformers would add a head of random weights."""
    kinds = read_config(folder).get("architectures") or []
    if not any(str(kind).endswith("ForSequenceClassification") for kind in kinds):
        raise UserError(
            f"reward model {folder}: its architecture is {', '.join(map(str, kinds)) or 'unknown'}; use a model for"
            " sequence classification"
        )


class RewardModel:
    def __init__(self, folder: Path, hardware: Hardware) -> None:
        check_reward_model(folder)
        quiet_libraries()
        settle_threads()
        import torch
        from transformers import AutoModelForSequenceClassification

        self._device = "cuda" if torch.cuda.is_available() and hardware.device != "cpu" else "cpu"
        dtype = torch.float32 if self._device == "cpu" else getattr(torch, hardware.dtype)
        self._tokenizer = tokenizer_of(folder)
        model: Any = loaded(AutoModelForSequenceClassification, folder, dtype)
        if model.config.num_labels > 2:
            raise UserError(
                f"reward model {folder}: it has {model.config.num_labels} labels; a reward model has one label, or two"
            )
        self._model = model.to(self._device).eval()
        self._positions = getattr(model.config, "max_position_embeddings", None)

    def score(self, texts: Sequence[tuple[str, str, bool]]) -> list[Reading]:
        """Return one score for each (problem, answer text, whether it has ended), in batches. The padded shape depends
        on a text's own length, so that its score does not depend on other texts: a resumed search meets its texts in
        other batches, and its choices depend on the scores."""
        ids = [encoded(self._tokenizer, *text) for text in texts]
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
        # transformers scores the last token that is not padding; with the tokenizer's own, it would skip an end of text
        pad = next(number for number in range(len(last) + 1) if number not in last)
        self._model.config.pad_token_id = pad
        ids_BL = torch.full(shape, pad)
        seen_BL = torch.zeros_like(ids_BL)
        for row, i in enumerate([*batch, *[batch[0]] * (shape[0] - len(batch))]):
            ids_BL[row, : len(ids[i])] = torch.tensor(ids[i])
            seen_BL[row, : len(ids[i])] = 1
        with torch.no_grad():
            out = self._model(input_ids=ids_BL.to(self._device), attention_mask=seen_BL.to(self._device))
        logits = out.logits.float().cpu()
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
    if not ended:  # without the template's end of an answer
        text = text[: text.rindex(written) + len(written)]
    return tokenizer(text, add_special_tokens=False)["input_ids"]
