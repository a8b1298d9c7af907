"""Sentence encoders, which turn traces into unit vectors, and the labelled traces that calibrate thresholds."""

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
from tasks.engines.hardware import quiet_libraries, settle_threads
from tasks.engines.model_files import model_files

#: Texts of one forward pass: few enough for a CPU's cache, and enough for a GPU with little padding.
BATCH = {"cpu": 4, "cuda": 32}


class SentenceEncoder:
    """A sentence-transformers model (all-mpnet-base-v2, all-MiniLM-L6-v2) from a folder, without the hub. max_tokens:
    the longest text in tokens, including special tokens."""

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
            raise UserError(f"encoder {name} has only {positions} positions; lower max_tokens={max_tokens}")
        self.model.max_seq_length = max_tokens
        self.name = name
        self.most = max_tokens - self.model.tokenizer.num_special_tokens_to_add()

    def encode(self, texts: Sequence[str], window: Window | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return (vectors_ND float32 of norm 1, coverage_N). The coverage is the share of a text's tokens that the
        encoder read. window: the part of each text to encode; None: its beginning up to max_tokens."""
        vectors_WND, coverage_WN = self.encode_windows(texts, [window])
        return vectors_WND[0], coverage_WN[0]

    def encode_windows(self, texts: Sequence[str], windows: Sequence[Window | None]) -> tuple[np.ndarray, np.ndarray]:
        """Return (vectors_WND, coverage_WN) for several windows of each text. A text that is shorter than its windows
        is encoded once. Raise UserError if a vector is not finite."""
        if not texts:
            size = self.model.get_embedding_dimension() or 0
            return np.zeros((len(windows), 0, size), np.float32), np.zeros((len(windows), 0))
        how = {"add_special_tokens": False, "return_offsets_mapping": any(windows), "truncation": False}
        tokens = self.model.tokenizer(list(texts), **how, verbose=False)
        length_N = np.array([len(one) for one in tokens["input_ids"]])
        pieces, sizes = list[str](), []
        for w in windows:
            pairs = [] if w is None else list(zip(texts, tokens["offset_mapping"], strict=True))
            pieces += texts if w is None else [w.cut(*pair) for pair in pairs]
            sizes.append(length_N if w is None else np.array([w.size(*pair) for pair in pairs]))
        seen_WN = np.minimum(np.stack(sizes), self.most)
        coverage_WN = np.where(length_N > 0, seen_WN / np.maximum(length_N, 1), 1.0)
        vectors_WND = self._vectors(pieces).reshape(len(windows), len(texts), -1)
        if not np.isfinite(vectors_WND).all():
            bad = int(np.flatnonzero(~np.isfinite(vectors_WND).all(axis=(0, 2)))[0])
            raise UserError(
                f"encoder {self.name} returned a vector that is not finite: text {bad}, {texts[bad][:60]!r}"
            )
        return vectors_WND, coverage_WN

    def _vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of texts. Equal texts are encoded once."""
        once = list(dict.fromkeys(texts))
        with quick_products(self.model.device.type):
            vectors = self.model.encode(
                once,
                batch_size=BATCH.get(self.model.device.type, 4),
                normalize_embeddings=True,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        place = {text: nth for nth, text in enumerate(once)}
        return np.asarray(vectors, np.float32)[[place[text] for text in texts]]


@contextmanager
def quick_products(device: str) -> Iterator[None]:
    """Use TF32 for float32 products on a GPU. TF32 is twice as fast, and changes cosines by up to 3e-5."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if device == "cuda" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


FILE = Path(__file__).with_name("labelled_traces.jsonl")


@dataclass(frozen=True, slots=True)
class LabelledProblem:
    """A problem's solutions, each in two wordings. solutions: for each of `traces`, the label of its solution."""

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
