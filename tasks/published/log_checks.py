"""What the published run log and series say beside the tables: where runs stopped, what was noted of the grader, counts
in prose that the rows do not have, a trend that is its last point, and a comparison at equal tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from storage.rules import pass_at_k
from tasks.published.files import rows_of, whole

Row = dict[str, Any]
LOG = "data/multipersona_gsm8k/manifest.json"
PROXY = "reports/olympiad_panel_only/diversity_proxy.jsonl"
#: Arm of a diversity file whose lengths are those of the evaluation that is compared.
EQUAL = ("eval_aime_vibecheck/aime_panel_postmath_n16", "eval_aime_vibecheck/aime_thinking_n16")
REACHED = re.compile(r"reached (\d+)/(\d+) \((\d+) rollouts")
APPROXIMATELY = re.compile(r"~(0\.\d+) correct")
PEAK = re.compile(r"base-run peak was (0\.\d+) at step (\d+)")
WINDOW_MEAN = re.compile(r"[Mm]ean correct (0\.\d+)")
LIMITS = re.compile(r"\((\d+)d, (\d+) token cap")
ARTEFACT = re.compile(r"[^;,.]*probable grader art[ei]fact \(([^)]*)\)")


def stop_rows(root: Path) -> list[Row]:
    """Trainings that did not run as requested: halted on the way and gone on with, or ended before their last step."""
    log = whole(root / LOG)
    run, ended = log["rl_run"], log["extend_160_run"]["training_completion"]
    done = [int(name[1]) for name in map(re.compile(r"step(\d+)_metrics").match, run) if name]
    return [
        {
            "run": "GSM8K",
            "requested": run["total_steps"],
            "executed": max(done),
            "stopped_at": run["halted"]["stopped_at_step"],
            "resumed_from": run["resumed"]["start_batch"],
            "reason": run["halted"]["reason"],
            "place": LOG,
        },
        {
            "run": "GSM8K, extended",
            "requested": ended["target_max_steps_requested"],
            "executed": ended["final_batch"],
            "reason": ended["completion_status"].replace("_", " "),
            "place": LOG,
        },
    ]


def note_rows(root: Path) -> list[Row]:
    """Notes of the run log on what the grader marked right, and counts in its prose that its own files do not have."""
    text = json.dumps(whole(root / LOG), ensure_ascii=False)
    rows = [
        {
            "code": "grader_artefact",
            "said": f"the log calls a problem that the panel saves a probable grader artefact: {m[1]}",
        }
        for m in ARTEFACT.finditer(text)
    ]
    for found in REACHED.finditer(text):
        said, planned, kept = (int(n) for n in found.groups())
        if said != kept:
            text_of = f"the log says that {said} of {planned} problems were reached, and the file has {kept} of them"
            rows.append({"code": "prose_count", "said": text_of})
    return [row | {"place": LOG} for row in (*rows, *_against_itself(whole(root / LOG), text))]


def _against_itself(log: Row, text: str) -> list[Row]:
    """Statements of the run log that figures elsewhere in it contradict, and one about the encoder."""
    rows = []
    start, status = log["rl_run"]["baseline_step0"]["correct"], log["project_status"]["headline_result"]
    if (said := APPROXIMATELY.search(status["baseline_step0_training_batch"])) and abs(float(said[1]) - start) > 0.05:
        rows.append(
            f"the log counts its improvement of {status['absolute_improvement_correct_pp']} pp from about {said[1]}"
            f" before training, where its own step 0 gives {start:.3f}"
        )
    high = log["rl_run"]["run_summary"]["run_highs"]["correct"]
    if (said := PEAK.search(text)) and int(said[2]) != high["step"]:
        rows.append(
            f"the log says that the first run was best at step {said[2]} with {said[1]}, and elsewhere at step"
            f" {high['step']} with {high['value']}"
        )
    window = log["extend_160_run"]["window_81_90_means"]
    if (said := WINDOW_MEAN.search(window["note"])) and abs(float(said[1]) - window["correct"]) > 0.0005:
        rows.append(f"the log gives steps 81 to 90 a mean of {window['correct']}, and {said[1]} in the note beside it")
    if said := LIMITS.search(text):
        rows.append(
            f"the log takes the encoder for one of {said[1]} dimensions that reads {said[2]} tokens;"
            " all-mpnet-base-v2 has 768 and reads 384"
        )
    return [{"code": "log_contradicts", "said": one} for one in rows]


def trend_rows(root: Path) -> list[Row]:
    """The change of a series from its first point, with its last point and without."""
    values = [(r["batch"], r["ac_len_cv_within_group"]) for r in rows_of(root / PROXY)]
    first, before, last = values[0], values[-2], values[-1]
    slopes = [float(np.polyfit(*np.array(part, float).T, deg=1)[0]) for part in (values, values[:-1])]
    return [
        {
            "series": "length CV within groups",
            "first_step": first[0],
            "last_step": last[0],
            "before_step": before[0],
            "change": last[1] - first[1],
            "change_without_last": before[1] - first[1],
            "slope": slopes[0],
            "slope_without_last": slopes[1],
            "place": PROXY,
        }
    ]


def equal_token_rows(evaluations: Mapping[str, pa.Table], diversities: Mapping[str, pa.Table]) -> list[Row]:
    """Panel's pass@k on AIME at all of its rollouts, beside thinking's at as many tokens, rounded down to whole k."""
    if not set(EQUAL) <= set(evaluations):
        return []
    lengths = diversities["diversity_analysis_aime"]
    rows, found = [], []
    for folder, arm in zip(EQUAL, ("panel", "thinking"), strict=True):
        groups = evaluations[folder]
        tokens = np.mean([r["num_tokens"] for r in lengths.to_pylist() if r["arm"] == arm])
        found.append((groups["group_size"].to_numpy(), groups["num_correct"].to_numpy(), float(tokens)))
    (n, c, tokens), (other_n, other_c, other_tokens) = found
    k = int(n.min())
    other_k = max(1, int(k * tokens / other_tokens))
    rows.append(
        {
            "arm": "panel",
            "other": "thinking",
            "problems": "AIME 2024+2025, 20",
            "k": k,
            "other_k": other_k,
            "estimate": float(pass_at_k(n, c, [k]).mean()),
            "other_estimate": float(pass_at_k(other_n, other_c, [other_k]).mean()),
            "tokens": k * tokens,
            "other_tokens": other_k * other_tokens,
            "place": f"reports/{EQUAL[0]}/summary.json, reports/{EQUAL[1]}/summary.json,"
            " reports/diversity_analysis_aime/per_problem.jsonl",
        }
    )
    return rows
