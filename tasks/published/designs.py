"""How each published run was made: the designs that the audit compares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.artifacts.kinds import Designs
from tasks.published.files import rows_of, whole

Row = dict[str, Any]
#: evaluation folder → (arm, problem set)
EVALUATIONS = {
    "eval_math500_vibecheck/math_final_panel": ("panel", "MATH-500 L1-L5, 50"),
    "eval_math500_vibecheck/thinking_native": ("thinking", "MATH-500 L1-L5, 50"),
    "eval_math500_vibecheck/math_final_no_panel": ("no_panel", "MATH-500 L1-L5, 50"),
    "eval_math500_vibecheck/final_panel": ("panel_premath", "MATH-500 L1-L5, 50"),
    "eval_math500_vibecheck/final_no_panel": ("no_panel_premath", "MATH-500 L1-L5, 50"),
    "eval_math500_vibecheck/instruct_native": ("instruct", "MATH-500 L1-L5, 50"),
    "eval_math500_vibecheck/panel_l5_full": ("panel", "MATH-500 L5"),
    "eval_math500_vibecheck/thinking_l5_full": ("thinking", "MATH-500 L5"),
    "eval_aime_vibecheck/aime_panel_postmath_n16": ("panel", "AIME 2024+2025, 20"),
    "eval_aime_vibecheck/aime_thinking_n16": ("thinking", "AIME 2024+2025, 20"),
    "eval_aime_vibecheck/final_panel": ("panel_premath", "AIME 2024+2025, 20"),
    "eval_aime_vibecheck/final_no_panel": ("no_panel_premath", "AIME 2024+2025, 20"),
}
#: The arms that the write-up compares; the others are controls.
COMPARED = ("panel", "thinking")
GSM8K = ("step000060", "step000070", "step000080", "stepFinal_batch128")


#: Column of Designs → fields of a summary that may state it, the first of them that does.
STATED = {
    "model": ("model_name", "base_model"),
    "policy": ("sampler_path", "checkpoint", "base_model"),
    "num_problems": ("n_problems", "n_evaluated"),
    "planned_problems": ("n_test_requested",),
    "group_size": ("n_samples_per_problem",),
    "temperature": ("temperature",),
    "max_tokens": ("max_tokens",),
}


def designs(root: Path) -> pa.Table:
    """Schema: Designs. What a summary does not state is looked up in the run log, else null."""
    log = whole(root / "data/multipersona_gsm8k/manifest.json")
    limits = _limits(log.get("post_math_panel", {}))
    rows = []
    for arm in ("panel", "thinking"):
        s, stated = _summary(root, f"reports/variance_band/{arm}_g8")
        about = {"run": s["tag"], "role": "screening", "family": "screening", "arm": arm, "problems": "olympiad pool"}
        rows.append(stated | about)
    for folder, (arm, problems) in EVALUATIONS.items():
        s, stated = _summary(root, f"reports/{folder}")
        rows.append(
            stated
            | {
                "run": folder.removeprefix("eval_").replace("_vibecheck/", " "),
                "role": "evaluation",
                "family": problems if arm in COMPARED else f"control {folder}",
                "arm": arm,
                "problems": problems,
                "max_tokens": stated["max_tokens"] or limits.get(s["tag"]),
            }
        )
    for tag in GSM8K:
        _, stated = _summary(root, f"reports/eval_gsm8k/{tag}")
        about = {"run": f"gsm8k {tag}", "role": "evaluation", "family": f"GSM8K at {tag}", "arm": "panel_premath"}
        rows.append(stated | about | {"problems": "GSM8K test, 500", "group_size": 1})
    return pa.Table.from_pylist([*rows, *_training(root / "reports", log)], schema=Designs.schema)


def _summary(root: Path, folder: str) -> tuple[Row, Row]:
    """A run's summary, and what it states of the design."""
    s = whole(root / folder / "summary.json")
    stated = {column: next((s[f] for f in fields if s.get(f)), None) for column, fields in STATED.items()}
    return s, stated | {"place": f"{folder}/summary.json"}


def _limits(node: object) -> dict[str, int]:
    """max_tokens by run tag, where the run log states it."""
    if not isinstance(node, dict):
        return {}
    own = {str(node["tag"]): int(node["max_tokens"])} if {"tag", "max_tokens"} <= node.keys() else {}
    return own | {tag: limit for child in node.values() for tag, limit in _limits(child).items()}


def _training(reports: Path, log: Row) -> list[Row]:
    summary = whole(reports / "olympiad_panel_only/summary.json")
    c, start = summary["config"], log["post_math_panel"]["checkpoint"]["sampler_path"]
    evaluated = [r["batch"] for r in rows_of(reports / "olympiad_panel_only/heldout_trajectory.jsonl")]
    shared = {
        "arm": "panel",
        "model": c["model"],
        "policy": start,
        "temperature": c["temperature"],
        "max_tokens": c["max_tokens"],
        "place": "reports/olympiad_panel_only/summary.json",
    }
    pool = whole(reports.parent / "data/olympiad_pool/split_summary.json")
    return [
        shared
        | {
            "run": "panel_olympiad",
            "role": "training",
            "family": "training",
            "seeds": 1,
            "problems": "panel_train",
            "num_problems": pool["panel_train"]["n"],
            "group_size": c["group_size"],
            "steps": c["max_steps"],
            "last_evaluated": max(evaluated),
        },
        shared
        | {
            "run": "panel_olympiad held-out",
            "role": "heldout",
            "family": "held-out",
            "problems": "heldout_eval",
            "num_problems": pool["heldout_eval"]["n"],
            "group_size": 1,
        },
    ]
