"""How each published run was made: the designs that the audit compares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.artifacts.kinds import Designs
from storage.errors import UserError
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


def designs(root: Path) -> pa.Table:
    """Schema: Designs. What a summary does not state is looked up in the run log, else null.

    Errors: UserError if a file lacks the fields that say how it was made.
    """
    log = whole(root / "data/multipersona_gsm8k/manifest.json")
    try:
        return pa.Table.from_pylist(_rows(root / "reports", log), schema=Designs.schema)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise UserError(f"{root}: a summary lacks {error}; not the published results") from None


def _rows(reports: Path, log: Row) -> list[Row]:
    rows = []
    for arm in ("panel", "thinking"):
        s = whole(reports / f"variance_band/{arm}_g8/summary.json")
        rows.append(
            {
                "run": s["tag"],
                "role": "screening",
                "family": "screening",
                "arm": arm,
                "model": s["base_model"],
                "policy": s["checkpoint"] or s["base_model"],
                "problems": "olympiad pool",
                "num_problems": s["n_problems"],
                "group_size": s["n_samples_per_problem"],
                "temperature": s["temperature"],
                "max_tokens": s["max_tokens"],
                "place": f"reports/variance_band/{arm}_g8/summary.json",
            }
        )
    rows += [_evaluation(reports, folder, arm, problems, log) for folder, (arm, problems) in EVALUATIONS.items()]
    for tag in GSM8K:
        s = whole(reports / f"eval_gsm8k/{tag}/summary.json")
        rows.append(
            {
                "run": f"gsm8k {tag}",
                "role": "evaluation",
                "family": f"GSM8K at {tag}",
                "arm": "panel_premath",
                "model": s["model_name"],
                "policy": s["sampler_path"],
                "problems": "GSM8K test, 500",
                "num_problems": s["n_evaluated"],
                "planned_problems": s["n_test_requested"],
                "group_size": 1,
                "temperature": s["temperature"],
                "max_tokens": s["max_tokens"],
                "place": f"reports/eval_gsm8k/{tag}/summary.json",
            }
        )
    return [*rows, *_training(reports, log)]


def _evaluation(reports: Path, folder: str, arm: str, problems: str, log: Row) -> Row:
    s = whole(reports / folder / "summary.json")
    logged = _limits(log).get(s["tag"])
    return {
        "run": folder.removeprefix("eval_").replace("_vibecheck/", " "),
        "role": "evaluation",
        "family": problems if arm in COMPARED else f"control {folder}",
        "arm": arm,
        "model": s.get("model_name") or s["base_model"],
        "policy": s.get("sampler_path") or s["base_model"],
        "problems": problems,
        "num_problems": s["n_problems"],
        "group_size": s["n_samples_per_problem"],
        "temperature": s.get("temperature"),
        "max_tokens": s.get("max_tokens") or logged,
        "place": f"reports/{folder}/summary.json",
    }


def _limits(log: Row) -> dict[str, int]:
    """max_tokens by run tag, where the run log states it."""
    found: dict[str, int] = {}

    def walk(node: object) -> None:
        if isinstance(node, dict):
            if "tag" in node and "max_tokens" in node:
                found[str(node["tag"])] = int(node["max_tokens"])
            for child in node.values():
                walk(child)

    walk(log.get("post_math_panel", {}))
    return found


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
