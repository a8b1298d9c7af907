"""The design of each published run, one row per run, for the audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.artifacts.schemas import Designs
from storage.errors import UserError

Row = dict[str, Any]
LOG = "data/multipersona_gsm8k/manifest.json"
MATH500, LEVEL5, AIME = "MATH-500 L1-L5, 50", "MATH-500 L5", "AIME 2024+2025, 20"
#: evaluation folder → (arm, problem set)
EVALUATIONS = {
    "eval_math500_vibecheck/math_final_panel": ("panel", MATH500),
    "eval_math500_vibecheck/thinking_native": ("thinking", MATH500),
    "eval_math500_vibecheck/math_final_no_panel": ("no_panel", MATH500),
    "eval_math500_vibecheck/final_panel": ("panel_premath", MATH500),
    "eval_math500_vibecheck/final_no_panel": ("no_panel_premath", MATH500),
    "eval_math500_vibecheck/instruct_native": ("instruct", MATH500),
    "eval_math500_vibecheck/panel_l5_full": ("panel", LEVEL5),
    "eval_math500_vibecheck/thinking_l5_full": ("thinking", LEVEL5),
    "eval_aime_vibecheck/aime_panel_postmath_n16": ("panel", AIME),
    "eval_aime_vibecheck/aime_thinking_n16": ("thinking", AIME),
    "eval_aime_vibecheck/final_panel": ("panel_premath", AIME),
    "eval_aime_vibecheck/final_no_panel": ("no_panel_premath", AIME),
}
#: The arms that the write-up compares; the others are controls.
COMPARED = ("panel", "thinking")
GSM8K = ("step000060", "step000070", "step000080", "stepFinal_batch128")
#: Column of Designs → fields of a summary that may state it; the first one present is used.
STATED = {
    "model": ("model_name", "base_model"),
    "policy": ("sampler_path", "checkpoint", "base_model"),
    "num_problems": ("n_problems", "n_evaluated"),
    "planned_problems": ("n_test_requested",),
    "group_size": ("n_samples_per_problem",),
    "temperature": ("temperature",),
    "max_tokens": ("max_tokens",),
}


def parsed(path: Path) -> Any:
    """Return the value of a JSON file, or the values of a JSON Lines file. Raise UserError with the file's path if the
    file is another one."""
    try:
        text = path.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not the published file: {error}") from None


def designs(root: Path) -> pa.Table:
    """Return the designs. Schema: Designs. Fields missing in a summary are taken from the run log, else null."""
    log = parsed(root / LOG)
    limits = _limits(log.get("post_math_panel", {}))
    sampled = [
        (f"variance_band/{arm}_g8", f"{arm}_g8", "screening", "screening", arm, "olympiad pool") for arm in COMPARED
    ]
    for folder, (arm, problems) in EVALUATIONS.items():
        family = problems if arm in COMPARED else f"control {folder}"
        run = folder.removeprefix("eval_").replace("_vibecheck/", " ")
        sampled.append((folder, run, "evaluation", family, arm, problems))
    sampled += [
        (f"eval_gsm8k/{tag}", f"gsm8k {tag}", "evaluation", f"GSM8K at {tag}", "panel_premath", "GSM8K test, 500")
        for tag in GSM8K
    ]
    rows = []
    for folder, *about in sampled:
        summary = parsed(root / "reports" / folder / "summary.json")
        row = {column: next((summary[f] for f in fields if summary.get(f)), None) for column, fields in STATED.items()}
        row |= zip(("run", "role", "family", "arm", "problems"), about, strict=True)
        row["max_tokens"] = row["max_tokens"] or limits.get(summary["tag"])
        row["group_size"] = row["group_size"] or 1
        rows.append(row | {"place": f"reports/{folder}/summary.json"})
    return pa.Table.from_pylist([*rows, *_training(root, log)], schema=Designs.schema)


def _limits(node: object) -> dict[str, int]:
    """Return max_tokens by run tag, from the run log."""
    if not isinstance(node, dict):
        return {}
    own = {str(node["tag"]): int(node["max_tokens"])} if {"tag", "max_tokens"} <= node.keys() else {}
    return own | {tag: limit for child in node.values() for tag, limit in _limits(child).items()}


def _training(root: Path, log: Row) -> list[Row]:
    """Return the training on the olympiad pool, and its evaluations on the held-out problems."""
    folder = "reports/olympiad_panel_only"
    config = parsed(root / folder / "summary.json")["config"]
    pools = parsed(root / "data/olympiad_pool/split_summary.json")
    shared = {name: config[name] for name in ("model", "temperature", "max_tokens")} | {
        "arm": "panel",
        "policy": log["post_math_panel"]["checkpoint"]["sampler_path"],
        "place": f"{folder}/summary.json",
    }
    steps = [row["batch"] for row in parsed(root / folder / "heldout_trajectory.jsonl")]
    training = {
        "run": "panel_olympiad",
        "role": "training",
        "family": "training",
        "problems": "panel_train",
        "seeds": 1,
    }
    training |= {"group_size": config["group_size"], "steps": config["max_steps"], "last_evaluated": max(steps)}
    heldout = {"run": "panel_olympiad held-out", "role": "heldout", "family": "held-out", "problems": "heldout_eval"}
    rows = [training, heldout | {"group_size": 1}]
    return [shared | row | {"num_problems": pools[row["problems"]]["n"]} for row in rows]
