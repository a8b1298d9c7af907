"""What the page of the 30B mixture says of its long arm: ten thousand tokens a rollout, of which no step was run whole."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.published_lengths import screening_lengths
from benchmarks.thirty_b_gpus import planned
from benchmarks.thirty_b_lengths import CAP, DRAWS, GROUPS, SIZE, alone, by_rollouts, thinking_step

#: Of its screening, in seconds; rollouts of that.
PUBLISHED_THINKING, ROLLOUTS = 21056.7, 877 * 8
#: Bytes a second of an H200's memory, as its maker says; of a token's keys and values in bfloat16.
MEMORY, TOKEN = 4.8e12, 96 * 1024


def thinking(long: dict[str, Any], lengths: list[int], cap: int) -> str:
    """What its screening would take at the rate of the largest batch in the middle of such rollouts. lengths: of all."""
    tokens = float(np.mean(lengths))
    ms = by_rollouts(long["ms"])
    most = max(ms)
    rate = 1000 * most / ms[most]
    seconds = tokens * ROLLOUTS / rate
    # a rollout looks back on half of itself in the mean
    read = sum(length**2 / 2 for length in lengths) * TOKEN / MEMORY
    return (
        f"- **Thinking's screening** ({PUBLISHED_THINKING:,.0f} s; AIME's lengths cut at {cap:,} tokens, mean {tokens:,.0f}), by batches in the middle of such rollouts, {long['contexts'][0]:,} to {long['contexts'][1]:,}"
        f" tokens into each: ms a position at {', '.join(f'{n} rollouts {value:.1f}' for n, value in ms.items())}. With {most} at once, about what the cache"
        f" holds, {rate:,.0f} tokens/s, or {seconds:,.0f} s for 877 x 8 without its end: at best {PUBLISHED_THINKING / seconds:.1f} times faster than published. **A tenth is missed**, and cannot be reached on one GPU with a"
        f" cache in bfloat16: reading it, {TOKEN // 1024} KiB a token, at {MEMORY / 1e12} TB/s alone takes {read:,.0f} s of the {PUBLISHED_THINKING / 10:,.0f} allowed. In fp8, which was not measured, that is {read / 2:,.0f}, which leaves nothing for all else."
    )


def step_of_thinking(known: dict[str, Any], published: Path) -> str:
    """Its two parts: training was measured on a GPU that did nothing else, sampling is computed."""
    own = np.concatenate(screening_lengths(published, "thinking", GROUPS, SIZE, CAP))
    ms, measured, panel = by_rollouts(known["long_contexts"]["ms"]), known["thinking_step"], known["learner"]
    mean, sampling = thinking_step(published, ms)
    (first, train), kept = measured["train"], planned().kept_rows
    short = panel["tokens"] / median(panel["train"]["1"][1:])
    beyond = own[own > kept].sum() / own.sum()
    return (
        f"- **A step of thinking**, in two parts: the learner takes {train:.0f} s for {own.sum():,} tokens of {SIZE} rollouts of {GROUPS} problems, lengths as AIME's cut at {CAP:,} (`{measured['command']}`; the first step {first:.0f} s), {own.sum() / train:,.0f} tokens/s where the"
        f" panel's short rollouts have {short:,.0f}: attention over {own.mean():,.0f} tokens a rollout. That is without recomputation: the plan of `paper` keeps packs of up to {kept:,} tokens, and of these tokens {beyond:.0%} are of longer rollouts, which it recomputes: a forward pass more of theirs, computed {train * (1 + beyond / 3):.0f} s. {measured['in_use_mib'] / 1024:.0f} of {measured['of_gib']:.0f} GiB were in use. Sampling was not run: by the ms a position in the middle of such rollouts (above) {sampling:.0f} s in the mean of {DRAWS} such steps of {mean:,.0f} tokens a rollout, {alone(own, ms):.0f} for this one,"
        " and more, since the last of them look back further and the cache does not hold 128 of them whole."
    )
