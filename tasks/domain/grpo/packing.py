"""Padding-free batches: many rollouts in one row of tokens, a group's prompt in it once.

A pack is a row of T tokens cut into segments. A prompt is a segment that attends to itself; a rollout's completion is
a segment that attends to its group's prompt and to itself. Since causal attention aligns the last query with the last
key, a list of key rows per segment says it all, and the rollouts of a group share one forward pass of their prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

#: Pairs of query and key that cost as much as a row's products with the weights: by operations 4,400 of Qwen3-30B-A3B,
#: 10,000 of Qwen2.5-1.5B.
PAIRS_A_ROW = 5_000
#: Rows that take as long as reading the weights, which a pack does three times however small it is: by bytes, 61 GB at
#: 4.3 TB/s where 134,763 rows take 9 s.
ROWS_A_PACK = 600


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One completion to train on. behaviour_T: float32 log-probs, those that are not finite unknown; `index` is the
    caller's. weights: float32, 2 x T, where the loss weighs tokens (covariance.py)."""

    index: int
    token_ids: Sequence[int]
    behaviour_T: np.ndarray
    advantage: float
    weights: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """Completions that share a prompt."""

    prompt_ids: Sequence[int]
    trajectories: Sequence[Trajectory]


@dataclass(frozen=True, slots=True)
class Pack:
    """Arrays of one forward pass: T rows of tokens, S segments, K predicted tokens.

    tokens_T, positions_T: int64; a completion's last token predicts nothing and is no row.
    starts_q, starts_k: int32 of length S + 1, where each segment's queries and keys begin; key_rows: int64, rows of T.
    rows_K: the row that predicts targets_K, tokens whose behaviour log-prob is known; the same order is that of
    behaviour_K, advantages_K: float32. rollout_K: the sequences' indices. weights: 2 x K, where tokens are weighed.
    """

    tokens_T: np.ndarray
    positions_T: np.ndarray
    starts_q: np.ndarray
    starts_k: np.ndarray
    key_rows: np.ndarray
    rows_K: np.ndarray
    targets_K: np.ndarray
    behaviour_K: np.ndarray
    advantages_K: np.ndarray
    rollout_K: np.ndarray
    weights: np.ndarray | None = None


def plan_packs(
    groups: Sequence[PromptGroup], budget: int, processes: int = 1, more: int = 0
) -> list[list[PromptGroup]]:
    """Cut groups into packs of about equal size of at most `budget` rows, in order and about as many for each process,
    `more` than the fewest; a group that is cut repeats its prompt. A rollout that is longer than the budget gets a pack
    of its own."""
    total = sum(len(g.prompt_ids) + sum(len(s.token_ids) - 1 for s in g.trajectories) for g in groups)
    target = total / max(1, (-(-total // (budget * processes)) + more) * processes)
    packs: list[list[PromptGroup]] = []
    size = 0
    for group in groups:
        current: list[Trajectory] = []
        for sequence in sorted(group.trajectories, key=lambda s: (-len(s.token_ids), s.index)):
            rows = len(sequence.token_ids) - 1
            cost = rows if current else rows + len(group.prompt_ids)
            if not packs or (size and (size + cost > budget or size >= target)):
                packs.append([])
                size, current = 0, []
                cost = rows + len(group.prompt_ids)
            if not current:
                packs[-1].append(PromptGroup(group.prompt_ids, current))
            current.append(sequence)
            size += cost
    return packs


def pack_cost(pack: Sequence[PromptGroup]) -> float:
    """What a pack's forward and backward pass take, in rows."""
    rows = pairs = 0.0
    for group in pack:
        prompt = len(group.prompt_ids)
        own = [len(s.token_ids) - 1 for s in group.trajectories]
        rows += prompt + sum(own)
        pairs += prompt**2 / 2 + sum(n * (prompt + n / 2) for n in own)
    return ROWS_A_PACK + rows + pairs / PAIRS_A_ROW


def plan_shares(groups: Sequence[PromptGroup], budget: int, processes: int) -> list[list[list[PromptGroup]]]:
    """A step's packs, dealt to processes. Of a few sizes of packs the largest that leaves the slowest process least:
    one pack beyond as many for each is a quarter of a share."""
    dealt = [_deal(plan_packs(groups, budget, processes, more), processes) for more in range(min(processes, 4))]
    return min(dealt, key=lambda shares: max(sum(map(pack_cost, share)) for share in shares))


def _deal(packs: list[list[PromptGroup]], processes: int) -> list[list[list[PromptGroup]]]:
    """The costliest first, each to who has least; a share keeps their order."""
    costs = list(map(pack_cost, packs))
    shares: list[list[int]] = [[] for _ in range(processes)]
    for i in sorted(range(len(packs)), key=lambda i: -costs[i]):
        min(shares, key=lambda share: sum(costs[j] for j in share)).append(i)
    return [[packs[i] for i in sorted(share)] for share in shares]


@dataclass(slots=True)
class _Builder:
    tokens: list[np.ndarray] = field(default_factory=list)
    positions: list[np.ndarray] = field(default_factory=list)
    keys: list[np.ndarray] = field(default_factory=list)
    queries: list[int] = field(default_factory=list)
    height: int = 0

    def add(self, token_ids: Sequence[int], first_position: int, prefix_rows: np.ndarray) -> np.ndarray:
        rows = np.arange(self.height, self.height + len(token_ids))
        self.tokens.append(np.asarray(token_ids, dtype=np.int64))
        self.positions.append(np.arange(first_position, first_position + len(token_ids)))
        self.keys.append(np.concatenate([prefix_rows, rows]))
        self.queries.append(len(token_ids))
        self.height += len(token_ids)
        return rows


def build_pack(groups: Sequence[PromptGroup]) -> Pack:
    """The arrays of one pack. A completion of one token is predicted by its prompt alone and adds no segment."""
    builder = _Builder()
    none = np.empty(0, dtype=np.int64)
    rows: list[np.ndarray] = []
    sequences: list[Trajectory] = []
    for group in groups:
        prompt_rows = builder.add(group.prompt_ids, 0, none)
        for sequence in group.trajectories:
            inner = list(sequence.token_ids[:-1])
            own = builder.add(inner, len(group.prompt_ids), prompt_rows) if inner else none
            rows.append(np.concatenate([prompt_rows[-1:], own]))
            sequences.append(sequence)
    lengths = [len(s.token_ids) for s in sequences]
    behaviour = np.concatenate([np.asarray(s.behaviour_T, dtype=np.float32) for s in sequences])
    known = np.isfinite(behaviour)
    weights = [s.weights for s in sequences if s.weights is not None]
    return Pack(
        tokens_T=np.concatenate(builder.tokens),
        positions_T=np.concatenate(builder.positions),
        starts_q=np.cumsum([0, *builder.queries]).astype(np.int32),
        starts_k=np.cumsum([0, *map(len, builder.keys)]).astype(np.int32),
        key_rows=np.concatenate(builder.keys),
        rows_K=np.concatenate(rows)[known],
        targets_K=np.concatenate([np.asarray(s.token_ids, dtype=np.int64) for s in sequences])[known],
        behaviour_K=behaviour[known],
        advantages_K=np.repeat(np.asarray([s.advantage for s in sequences], dtype=np.float32), lengths)[known],
        rollout_K=np.repeat(np.asarray([s.index for s in sequences], dtype=np.int64), lengths)[known],
        weights=np.concatenate(weights, axis=1)[:, known] if weights else None,
    )
