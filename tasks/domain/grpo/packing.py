"""Batches without padding: many rollouts in one row of tokens, where a group's prompt stands once.

A pack is a row of T tokens that is divided into segments. A prompt is a segment that attends to itself. A completion is
a segment that attends to itself and to its group's prompt. Causal attention aligns the last query with the last key, so
a list of key rows per segment describes this. The rollouts of a group thus share one forward pass of their prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Number of pairs of query and key that cost as much as one row's products with the weights. By count of operations it
#: is 4,400 for Qwen3-30B-A3B and 10,000 for Qwen2.5-1.5B.
PAIRS_A_ROW = 5_000
#: Reading the weights for a pack takes as long as computing this many rows. A pack of any size reads them three times:
#: 61 GB at 4.3 TB/s, on a device where 134,763 rows take 9 s.
ROWS_A_PACK = 600


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One completion to train on. behaviour_T: float32 log-probs; non-finite where unknown. index: chosen by the
    caller. weights: float32, 2 x T, if the loss weights tokens (losses.py)."""

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

    - tokens_T, positions_T: int64. The last token of a completion predicts nothing and has no row.
    - starts_q, starts_k: int32 of length S + 1, the start of each segment's queries and keys.
    - key_rows: int64, the rows that the keys come from.
    - targets_K: the predicted tokens with a known behaviour log-prob; rows_K: the rows that predict them.
    - behaviour_K, advantages_K: float32; rollout_K: the `index` of each token's completion.
    - weights: 2 x K numbers, if the loss weights tokens.
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
    """Divide groups, in order, into packs of similar size with at most `budget` rows, about equally many per process. A
    group that is split repeats its prompt. A rollout longer than the budget gets a pack of its own. more: number of
    packs per process beyond the minimum."""
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
    """Return the cost of a pack's forward and backward pass, in rows."""
    rows = pairs = 0.0
    for group in pack:
        prompt = len(group.prompt_ids)
        own = [len(s.token_ids) - 1 for s in group.trajectories]
        rows += prompt + sum(own)
        pairs += prompt**2 / 2 + sum(n * (prompt + n / 2) for n in own)
    return ROWS_A_PACK + rows + pairs / PAIRS_A_ROW


def plan_shares(groups: Sequence[PromptGroup], budget: int, processes: int) -> list[list[list[PromptGroup]]]:
    """Divide a step's packs among the learner's processes. The pack size minimises the work of the slowest process."""
    dealt = [_deal(plan_packs(groups, budget, processes, more), processes) for more in range(min(processes, 4))]
    return min(dealt, key=lambda shares: max(sum(map(pack_cost, share)) for share in shares))


def _deal(packs: list[list[PromptGroup]], processes: int) -> list[list[list[PromptGroup]]]:
    """Give each pack, the costliest first, to the process with the least work. Keep the packs of a process in order."""
    costs = list(map(pack_cost, packs))
    shares: list[list[int]] = [[] for _ in range(processes)]
    for i in sorted(range(len(packs)), key=lambda i: -costs[i]):
        min(shares, key=lambda share: sum(costs[j] for j in share)).append(i)
    return [[packs[i] for i in sorted(share)] for share in shares]


def build_pack(groups: Sequence[PromptGroup]) -> Pack:
    """Return the arrays of one pack. A completion of one token is predicted by its prompt and adds no segment."""
    tokens, positions, keys, rows = [], [], [], list[np.ndarray]()
    height = 0

    def add(token_ids: Sequence[int], first_position: int, prefix_rows: Sequence[int]) -> range:
        nonlocal height
        segment = range(height, height := height + len(token_ids))
        tokens.append(token_ids)
        positions.append(range(first_position, first_position + len(token_ids)))
        keys.append([*prefix_rows, *segment])
        return segment

    for group in groups:
        prompt_rows = add(group.prompt_ids, 0, ())
        for sequence in group.trajectories:
            inner = sequence.token_ids[:-1]
            own = add(inner, len(group.prompt_ids), prompt_rows) if len(inner) else ()
            rows.append(np.array([prompt_rows[-1], *own]))
    sequences = [sequence for group in groups for sequence in group.trajectories]
    lengths = [len(s.token_ids) for s in sequences]
    behaviour = np.concatenate([np.asarray(s.behaviour_T, dtype=np.float32) for s in sequences])
    known = np.isfinite(behaviour)
    weights = [s.weights for s in sequences if s.weights is not None]

    def joined(parts: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
        return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])

    return Pack(
        tokens_T=joined(tokens),
        positions_T=joined(positions),
        starts_q=np.cumsum([0, *map(len, tokens)]).astype(np.int32),
        starts_k=np.cumsum([0, *map(len, keys)]).astype(np.int32),
        key_rows=joined(keys),
        rows_K=joined(rows)[known],
        targets_K=joined([s.token_ids for s in sequences])[known],
        behaviour_K=behaviour[known],
        advantages_K=np.repeat(np.asarray([s.advantage for s in sequences], dtype=np.float32), lengths)[known],
        rollout_K=np.repeat(np.asarray([s.index for s in sequences], dtype=np.int64), lengths)[known],
        weights=np.concatenate(weights, axis=1)[:, known] if weights else None,
    )
