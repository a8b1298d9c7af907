"""A completion as it is written, from any engine: asked for in short pieces, each continuing the one before.

An engine hands over whole completions only. A piece is a request whose prompt is the prompt and all tokens so far, so
whatever runs a rollout can also be watched; pieces draw with seeds of their own, so the text is no ledger's rollout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from storage.artifacts.fingerprint import derived_seed
from tasks.domain.policies import ServedAdapter
from tasks.engines.protocols import Decoding, Finish, Generator, Request

PIECE_TOKENS = 12


def stream(
    generator: Generator,
    prompt_ids: tuple[int, ...],
    decoding: Decoding,
    seed: int,
    adapter: ServedAdapter | None,
    piece_tokens: int = PIECE_TOKENS,
) -> Iterator[tuple[str, Finish | None]]:
    """(text, null) piece by piece, then ("", how it ended). The text includes the stop string that ended it."""
    ids, said, left = prompt_ids, "", decoding.max_tokens
    while left > 0:
        asked = replace(decoding, max_tokens=min(piece_tokens, left))
        request = Request(0, ids, derived_seed(seed, len(ids)), asked)
        piece = next(iter(generator.generate([request], adapter)))
        whole = said + piece.text
        end = min((i + len(s) for s in decoding.stop if (i := whole.find(s)) >= 0), default=None)
        text = whole[len(said) : end]
        yield text, None
        if end is not None or piece.finish == "stop" or not piece.token_ids:
            yield "", "stop"
            return
        said += text
        ids += tuple(piece.token_ids)
        left -= len(piece.token_ids)
    yield "", "length"
