"""Sentence encoders (traces to unit vectors), and the labelled traces that calibrate a partition's threshold.

Texts are batched by length, with about equal numbers of tokens per batch, and equal texts are encoded once. The vectors
equal those of a plain `encode` call.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from storage.errors import UserError
from tasks.domain.statistics.windows import Window
from tasks.engines.environment import quiet_libraries, settle_threads
from tasks.engines.model_files import model_files

#: Padded tokens of one forward pass: few enough for a CPU's cache, enough to use a GPU with little padding.
BATCH_TOKENS = {"cpu": 2_048, "cuda": 8_192}


class SentenceEncoder:
    """A sentence-transformers folder (all-mpnet-base-v2, all-MiniLM-L6-v2), loaded without the hub. max_tokens: limit
    of a text in tokens, including special tokens."""

    def __init__(self, folder: Path, *, name: str, max_tokens: int) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        quiet_libraries()
        settle_threads()
        model_files(folder)
        from sentence_transformers import SentenceTransformer

        try:
            self.model = SentenceTransformer(
                str(folder), local_files_only=True, trust_remote_code=False, model_kwargs={"use_safetensors": True}
            )
        except (OSError, ValueError) as error:
            raise UserError(f"encoder folder {folder}: not a sentence-transformers model ({error})") from None
        limit = self.model.get_max_seq_length() or max_tokens
        transformer: Any = self.model[0]
        positions = getattr(transformer.auto_model.config, "max_position_embeddings", limit)
        if max_tokens > max(limit, positions):
            raise UserError(f"encoder {name} has {positions} positions, fewer than max_tokens={max_tokens}; lower it")
        self.model.max_seq_length = max_tokens
        self.name, self.max_tokens = name, max_tokens
        self.tokenizer = self.model.tokenizer
        plain, framed = (self.tokenizer("a", add_special_tokens=special)["input_ids"] for special in (False, True))
        at = framed.index(plain[0])
        self.before, self.after = framed[:at], framed[at + len(plain) :]
        self.most = max_tokens - len(self.before) - len(self.after)

    def encode(self, texts: Sequence[str], window: Window | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return (vectors_ND float32 of norm 1, coverage_N: share of each text's tokens that the encoder saw). window:
        the part of each text to encode; None for its beginning up to max_tokens."""
        vectors_WND, coverage_WN = self.encode_windows(texts, [window])
        return vectors_WND[0], coverage_WN[0]

    def encode_windows(self, texts: Sequence[str], windows: Sequence[Window | None]) -> tuple[np.ndarray, np.ndarray]:
        """Return (vectors_WND, coverage_WN) for several windows of each text, which is tokenised once. If a text is
        shorter than its windows, it is encoded once. Errors: UserError if a vector is not finite."""
        if not texts:
            size = self.model.get_embedding_dimension() or 0
            return np.zeros((len(windows), 0, size), np.float32), np.zeros((len(windows), 0))
        tokens = self._tokens(texts, spans=any(windows))
        length_N = np.array([len(one) for one in tokens["input_ids"]])
        ids, parts = [], []
        for w in windows:
            if w is None:
                ids += tokens["input_ids"]
                parts.append(length_N)
            else:
                pairs = list(zip(texts, tokens["offset_mapping"], strict=True))
                ids += self._tokens([w.cut(*pair) for pair in pairs])["input_ids"]
                parts.append(np.array([w.size(*pair) for pair in pairs]))
        seen_WN = np.minimum(np.stack(parts), self.most)
        coverage_WN = np.where(length_N > 0, seen_WN / np.maximum(length_N, 1), 1.0)
        vectors_WND = self._vectors(ids).reshape(len(windows), len(texts), -1)
        if not np.isfinite(vectors_WND).all():
            bad = int(np.flatnonzero(~np.isfinite(vectors_WND).all(axis=(0, 2)))[0])
            raise UserError(f"encoder {self.name} gave a vector that is not finite for text {bad}: {texts[bad][:60]!r}")
        return vectors_WND, coverage_WN

    def _tokens(self, texts: Sequence[str], spans: bool = False) -> Any:
        """Return token ids of each text, without special tokens. spans: also their character positions, which takes
        longer."""
        return self.tokenizer(
            list(texts), add_special_tokens=False, return_offsets_mapping=spans, truncation=False, verbose=False
        )

    def _vectors(self, ids_of: Sequence[Sequence[int]]) -> np.ndarray:
        """Return the vectors of token ids, truncated to the encoder's limit."""
        import torch

        unique: dict[tuple[int, ...], int] = {}
        index_N = np.array([unique.setdefault(tuple(ids[: self.most]), len(unique)) for ids in ids_of])
        once = [[*self.before, *ids, *self.after] for ids in unique]
        out: np.ndarray | None = None
        with torch.inference_mode(), quick_products(self.model.device.type):
            most = BATCH_TOKENS.get(self.model.device.type, 2_048)
            for batch in length_batches(np.array([len(ids) for ids in once]), most):
                rows = self._forward([once[i] for i in batch])
                if out is None:
                    out = np.empty((len(once), rows.shape[1]), np.float32)
                out[batch] = rows
        assert out is not None
        return out[index_N]

    def _forward(self, texts: list[list[int]]) -> np.ndarray:
        """Run one batch of token ids, including special tokens."""
        import torch

        rows = [torch.tensor(ids) for ids in texts]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.tokenizer.pad_token_id)
        seen = torch.arange(padded.shape[1]) < torch.tensor([[len(ids)] for ids in texts])
        features = {"input_ids": padded, "attention_mask": seen.long()}
        features = {name: tensor.to(self.model.device) for name, tensor in features.items()}
        vectors = self.model.forward(features)["sentence_embedding"].float()
        return torch.nn.functional.normalize(vectors, dim=1).cpu().numpy()


@contextmanager
def quick_products(device: str) -> Iterator[None]:
    """Use TF32 for float32 products on a GPU: twice as fast, and cosines change by up to 3e-5."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if device == "cuda" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def length_batches(length_N: np.ndarray, max_tokens: int) -> Iterator[np.ndarray]:
    """Yield indices of texts in batches of similar length, longest first, each of at most `max_tokens` padded tokens or
    one text.

    >>> [b.tolist() for b in length_batches(np.array([2, 9, 3]), 6)]
    [[1], [2, 0]]
    """
    order = np.argsort(-length_N, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, max_tokens // max(int(length_N[order[start]]), 1))
        yield order[start : start + size]
        start += size


FILE = Path(__file__).with_name("labelled_traces.jsonl")


@dataclass(frozen=True, slots=True)
class LabelledProblem:
    """A problem's solutions, each in two wordings. solutions: the label of each of `traces`."""

    problem: str
    traces: Sequence[str]
    solutions: Sequence[str]


@cache
def labelled_sha256() -> str:
    return hashlib.sha256(FILE.read_bytes()).hexdigest()


def labelled_problems() -> list[LabelledProblem]:
    """Return the labelled problems in the order of the file."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in FILE.read_bytes().splitlines():
        row = orjson.loads(line)
        found.setdefault(row["problem"], []).append((row["trace"], row["solution"]))
    return [LabelledProblem(problem, *map(list, zip(*rows, strict=True))) for problem, rows in found.items()]
