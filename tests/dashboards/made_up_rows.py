"""Rows as a sampler, a learner and an encoder would leave them, made up and deterministic."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.schemas import Embeddings, Pool, Rollouts, Training
from storage.records.runs import Amounts, Run, now

SOURCES = ("sums", "clocks")
HOSTILE = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>",
    "ש\u202eלום \u2066right to left\u2069 abc",
    "x" * 100_000,
    "a | b\n| --- |\n**bold** $\\frac{1}{2}$ \x00\x1b[31mred",
)


def pool_rows_of(problems: int) -> list[dict[str, Any]]:
    return [
        dict.fromkeys(Pool.schema.names)
        | {"problem_id": f"p{i:04d}", "source": SOURCES[i % 2], "source_id": f"{SOURCES[i % 2]}-{i}", "gold": str(i)}
        | {"problem": f"What is {i} + 0? <b>Give</b> \\(x\\).", "gold_raw": str(i), "answer_type": "integer"}
        | {"cluster": f"c{i}"}
        for i in range(problems)
    ]


def rollouts(
    problems: list[dict[str, object]],
    arm: str,
    group_size: int,
    skill: float,
    *,
    step: int = 0,
    adapter: str | None = None,
    seed: int = 0,
    hostile: bool = False,
) -> pa.Table:
    """Harder problems come later; the panel writes short traces, the monologue long ones."""
    draw = random.Random(f"{arm} {step} {seed} {group_size}")
    tag = {"panel": "mutipersonaDebate"}.get(arm, "think")
    of = {"arm": arm, "adapter": adapter, "step": step, "seed": seed, "reason": "compared", "grader_version": "1"}
    of |= {"finish": "stop", "num_prompt_tokens": 40, "logprob_sum": -12.5}
    rows = []
    for i, problem in enumerate(problems):
        chance = max(0.0, min(1.0, skill + 0.75 - 1.5 * i / len(problems)))
        for g in range(group_size):
            correct = draw.random() < chance
            answer = str(problem["gold"]) if correct else str(draw.randrange(50, 99))
            words = " ".join(draw.choice(("so", "add", "carry", "check", "thus")) for _ in range(12))
            trace = f"Ann: {words}. Bob: {words}, \\(x = {answer}\\)."
            if hostile and i < 4:
                trace = HOSTILE[(i + g) % len(HOSTILE)]
            row = {"problem_id": problem["problem_id"], "source": problem["source"], "rollout": g, "trace": trace}
            row |= {"tag_valid": draw.random() < 0.9, "answer": answer, "canonical": answer, "correct": correct}
            row |= {"completion": f"<{tag}>{trace}</{tag}> <answer>{answer}</answer>"}
            row |= {"verdict": "correct" if correct else "wrong"}
            row |= {"num_tokens": draw.randrange(20, 60) * (1 if arm == "panel" else 5)}
            rows.append(of | row)
    return pa.Table.from_pylist(rows, schema=Rollouts.schema)


def steps_of(arm: str, seed: int, steps: int) -> pa.Table:
    draw = random.Random(f"steps {arm} {seed}")
    same: dict[str, Any] = dict.fromkeys(Training.schema.names, 0) | {"arm": arm, "seed": seed, "kl_start": None}
    same |= {"tag_valid_mean": 0.9, "all_zero": 1, "variance": 6, "all_one": 1, "length_mean": 40.0, "truncated": 0.01}
    same |= {"ratio_mean": 1.0, "ratio_max": 1.2, "kl_behaviour": 0.001, "loss": 0.1, "grad_norm": 0.5}
    same |= {"learning_rate": 2e-3, "num_tokens": 2000, "trained_tokens": 1500, "updates": 1}
    rows = []
    for step in range(1, steps + 1):
        share = step / steps
        row = {"step": step, "reward_mean": 0.2 + 0.3 * share, "length_cv_within": 0.3 + 0.2 * share}
        row |= {"correct_mean": 0.2 + 0.3 * share + draw.uniform(-0.05, 0.05), "live_groups": 0.8 - 0.2 * share}
        rows.append(same | row | {"entropy": 1.2 - 0.6 * share + draw.uniform(0, 0.05)})
    return pa.Table.from_pylist(rows, schema=Training.schema)


def exposure_rows(arm: str, seed: int, steps: int, problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"arm": arm, "seed": seed, "step": step, "problem_id": p["problem_id"], "source": p["source"]}
        | {"num_correct": 3, "group_size": 8, "live": True}
        for step in range(1, steps + 1)
        for p in problems
    ]


def embedded(table: pa.Table) -> pa.Table:
    """Return vectors as an encoder would; those of the panel lie further apart."""
    spread = 0.35 if table["arm"][0].as_py() == "panel" else 0.25
    n, rng = len(table), np.random.default_rng(len(table) + int(table["step"][0].as_py()))
    vectors = np.ones((n, 8)) + spread * rng.normal(size=(n, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    columns = {name: table[name] for name in Embeddings.schema.names if name in table.column_names}
    columns |= {"window": ["whole"] * n, "coverage": [0.9] * n, "num_chars": [120] * n, "embedding": vectors.tolist()}
    return pa.table(columns).select(Embeddings.schema.names).cast(Embeddings.schema)


def calibration_rows() -> list[dict[str, Any]]:
    """Return a calibration on made-up labels."""
    counts = {"joined": 48, "joined_rightly": 34, "same": 51, "pairs": 243, "problems": 18, "traces": 102}
    shares = {"precision": 34 / 48, "recall": 34 / 51}
    ends = {"precision_low": 0.5, "precision_high": 0.9, "recall_low": 0.5, "recall_high": 0.8}
    return [
        {"partition": "trace", "threshold": 0.9, "encoder": "made-up"} | counts | shares | ends,
        {"partition": "strategy", "threshold": 0.3} | counts | shares | {"reason": "made up without an interval"},
    ]


def audit_rows() -> list[dict[str, Any]]:
    row = {"code": "few_problems", "fact": "<b>10</b> held-out problems", "place": "made up"}
    return [row | {"inference": "intervals are wide", "value": 10.0, "query": "lint_made_up"}]


def run_under_way() -> Run:
    """Return the record of a run on another host, with a heartbeat of now."""
    at = {"state": "running", "at": "train panel", "stages": 10, "stages_done": 3, "host": "elsewhere", "pid": 1}
    beat = now()
    return Run.model_validate(
        {"id": "demo-01234567", "profile": "demo", "request": {}, "spent": Amounts(), **at}
        | {"started": beat, "heartbeat": beat}
    )
