"""Sentence encoders: traces to unit vectors, sorted by length so that little is padding.

A plain `encode` call pads every batch to its longest text. Here texts are batched by how many tokens they have,
each batch holding about the same number of tokens, and equal texts are encoded once; the vectors are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from storage.errors import UserError
from tasks.domain.statistics.windows import Span, Window
from tasks.engines.encoding.packed_mpnet import PACK_TOKENS, PackedMpnet, packable
from tasks.engines.environment import quiet_libraries

#: Padded tokens of one forward pass: what stays in a CPU's cache, what fills a GPU.
BATCH_TOKENS = {"cpu": 2_048, "cuda": 131_072}


class SentenceEncoder:
    """A sentence-transformers folder (all-mpnet-base-v2, all-MiniLM-L6-v2). Never asks a hub.

    max_tokens: tokens of a text that the encoder sees, special tokens included.
    """

    def __init__(self, folder: Path, *, name: str, max_tokens: int) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        quiet_libraries()
        from sentence_transformers import SentenceTransformer

        try:
            self.model = SentenceTransformer(str(folder), local_files_only=True)
        except (OSError, ValueError) as error:
            raise UserError(f"encoder folder {folder}: not a sentence-transformers model ({error})") from None
        limit = self.model.get_max_seq_length() or max_tokens
        transformer: Any = self.model[0]
        positions = getattr(transformer.auto_model.config, "max_position_embeddings", limit)
        if max_tokens > max(limit, positions):
            raise UserError(f"encoder {name} has {positions} positions, but max_tokens={max_tokens} was asked for")
        self.model.max_seq_length = max_tokens
        self.name, self.max_tokens = name, max_tokens
        self.tokenizer = self.model.tokenizer
        self.special = self.tokenizer.num_special_tokens_to_add()
        self.packed = PackedMpnet(transformer.auto_model, max_tokens) if packable(self.model) else None

    def encode(self, texts: Sequence[str], window: Window | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(vectors_ND float32 of norm 1, coverage_N: share of each text's tokens that the encoder saw).

        window: the part of each text that is shown; null for its beginning up to max_tokens.
        """
        vectors_WND, coverage_WN = self.encode_windows(texts, [window])
        return vectors_WND[0], coverage_WN[0]

    def encode_windows(self, texts: Sequence[str], windows: Sequence[Window | None]) -> tuple[np.ndarray, np.ndarray]:
        """(vectors_WND, coverage_WN): several windows of each text, which is tokenised once. Windows of a short text
        are the text itself and are encoded once. Errors: UserError if the encoder returns numbers that are not finite.
        """
        if not texts:
            size = self.model.get_embedding_dimension() or 0
            return np.zeros((len(windows), 0, size), np.float32), np.zeros((len(windows), 0))
        spans = self.tokenizer(
            list(texts), add_special_tokens=False, return_offsets_mapping=True, truncation=False, verbose=False
        )["offset_mapping"]
        pairs = list(zip(texts, spans, strict=True))
        length_N = np.array([len(s) for s in spans])
        shown, parts = [], []
        for w in windows:
            shown += [self._beginning(t, s) if w is None else w.cut(t, s) for t, s in pairs]
            parts.append(length_N if w is None else np.array([w.size(t, s) for t, s in pairs]))
        seen_WN = np.minimum(np.stack(parts), self.max_tokens - self.special)
        coverage_WN = np.where(length_N > 0, seen_WN / np.maximum(length_N, 1), 1.0)
        vectors_WND = self._vectors(shown, seen_WN.reshape(-1)).reshape(len(windows), len(texts), -1)
        if not np.isfinite(vectors_WND).all():
            bad = int(np.flatnonzero(~np.isfinite(vectors_WND).all(axis=(0, 2)))[0])
            raise UserError(f"encoder {self.name} gave a vector that is not finite for text {bad}: {texts[bad][:60]!r}")
        return vectors_WND, coverage_WN

    def _beginning(self, text: str, spans: Sequence[Span]) -> str:
        """What the encoder will see of a text, so that it is not tokenised whole a second time. A word cut between
        two pieces keeps its pieces: the longest match found in the whole word is found in its beginning."""
        return text[: spans[self.max_tokens][1]] if len(spans) > self.max_tokens else text

    def _vectors(self, texts: Sequence[str], lengths_N: np.ndarray) -> np.ndarray:
        import torch

        unique: dict[str, int] = {}
        index_N = np.array([unique.setdefault(t, len(unique)) for t in texts])
        once = list(unique)
        length_U = np.zeros(len(once), np.int64)
        length_U[index_N] = lengths_N + self.special
        out: np.ndarray | None = None
        with torch.inference_mode():
            most = PACK_TOKENS if self.packed else BATCH_TOKENS.get(self.model.device.type, 2_048)
            for batch in length_batches(length_U, most):
                rows = self._forward([once[i] for i in batch])
                if out is None:
                    out = np.empty((len(once), rows.shape[1]), np.float32)
                out[batch] = rows
        assert out is not None
        return out[index_N]

    def _forward(self, texts: list[str]) -> np.ndarray:
        import torch

        features: dict[str, Any] = self.model.preprocess(texts)
        if self.packed:
            masks = features["attention_mask"].bool()
            rows = self.packed.means([ids[m] for ids, m in zip(features["input_ids"], masks, strict=True)])
            return torch.nn.functional.normalize(rows, dim=1).numpy()
        features = {k: v.to(self.model.device) if hasattr(v, "to") else v for k, v in features.items()}
        vectors = self.model.forward(features)["sentence_embedding"].float()
        return torch.nn.functional.normalize(vectors, dim=1).cpu().numpy()


def length_batches(length_N: np.ndarray, max_tokens: int) -> Iterator[np.ndarray]:
    """Indices of texts in batches of similar length, longest first, each of at most `max_tokens` padded tokens
    (one text at least).

    >>> [b.tolist() for b in length_batches(np.array([2, 9, 3]), 6)]
    [[1], [2, 0]]
    """
    order = np.argsort(-length_N, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, max_tokens // max(int(length_N[order[start]]), 1))
        yield order[start : start + size]
        start += size
