"""What a step of GRPO needs at least, by the bytes and the operations of its rollouts."""

from __future__ import annotations

import argparse
from itertools import pairwise

from tasks.domain.grpo.packing import plan_packs
from tasks.domain.grpo.trained_groups import trained_groups
from tasks.domain.grpo.types import LearnerConfig, TrainRollout
from tasks.engines.learning.memory_plan import lora_parameters, num_experts, read_config

#: Measured on one H200: a large device-to-device copy, a large bf16 matrix product on random data.
BYTES_PER_SECOND, FLOPS_PER_SECOND = 4.3e12, 790e12


def floors(
    rollouts: list[TrainRollout], config: LearnerConfig, args: argparse.Namespace, budget: int
) -> dict[str, float]:
    """What the step needs at least: training operations of a frozen base (forward and input gradients) and the bytes of
    decoding (weights once a token position, each rollout's cache once a token)."""
    groups: dict[str, list[TrainRollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.problem_id, []).append(rollout)
    packs = plan_packs(trained_groups(groups, config), budget)
    rows = sum(len(g.prompt_ids) + sum(len(t.token_ids) - 1 for t in g.trajectories) for p in packs for g in p)
    predicted = sum(len(t.token_ids) for p in packs for g in p for t in g.trajectories)
    model = read_config(args.model)
    hidden, layers = model["hidden_size"], model["num_hidden_layers"]
    heads, kv_heads = model["num_attention_heads"], model.get("num_key_value_heads", model["num_attention_heads"])
    head = model.get("head_dim") or hidden // heads
    attention = 2 * hidden * head * (heads + kv_heads)
    expert, experts = 3 * hidden * model["intermediate_size"], num_experts(model)
    chosen = 1
    if experts:
        expert, chosen = 3 * hidden * model["moe_intermediate_size"], model["num_experts_per_tok"]
    block = layers * (attention + chosen * expert)
    embedding = model["vocab_size"] * hidden
    flops = (
        4.0 * rows * block
        + 4.0 * predicted * embedding
        + 6.0
        * rows
        * lora_parameters(model, config.lora_rank, config.target_modules, config.expert_rank)
        * chosen
        / max(1, experts)
    )
    cache = layers * 2 * kv_heads * head * 2
    read = sum(len(r.token_ids) * (len(r.prompt_ids) + len(r.token_ids) / 2) for r in rollouts) * cache
    lengths = sorted(len(r.token_ids) for r in rollouts)
    for running, (before, until) in zip(range(len(lengths), 0, -1), pairwise([0, *lengths]), strict=True):
        # of a mixture, the experts that some rollout is routed to, as if at random
        touched = experts * (1 - (1 - chosen / experts) ** running) if experts else 1
        read += (until - before) * 2.0 * (layers * (attention + touched * expert) + embedding)
    return {
        "rows": float(rows),
        "train_flops": flops,
        "floor_train": flops / FLOPS_PER_SECOND,
        "floor_decode": read / BYTES_PER_SECOND,
    }
