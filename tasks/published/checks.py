"""Rows for the lints (tasks.designs) of what the published files say about their own design, and the printed token
table checked against itself."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from storage.rules import pass_at_k
from storage.sql import query
from tasks.domain.statistics.shares import bootstrap_mean
from tasks.published.files import rows_of, whole

Row = dict[str, Any]
ENCODER_TOKENS = 384  # all-mpnet-base-v2's own limit, two of them special
#: diversity folder → (problem set, {label: arm})
VARIANTS = {
    "diversity_analysis": (
        "MATH-500 L1-L5, 50",
        {
            "panel_postmath": "panel",
            "thinking": "thinking",
            "panel_premath": "panel_premath",
            "no_panel_postmath": "no_panel",
        },
    ),
    "diversity_analysis_longhead": ("MATH-500 L1-L5, 50", {"panel_postmath": "panel", "thinking": "thinking"}),
    "diversity_analysis_aime": ("AIME 2024+2025, 20", {"panel_aime": "panel", "thinking_aime": "thinking"}),
}
#: What the write-up says of the thinking model on the shared held-out.
STATED_REFERENCE = {"all": 0.60, "olympiadbench": 0.55, "amc": 0.75}


def window_of(root: Path, folder: str) -> str:
    return f"head{whole(root / 'reports' / folder / 'summary.json')['config']['trace_head_chars']}chars"


def test_rows(root: Path) -> list[Row]:
    """Every printed p-value of a paired t, with what t gives under Student's and the normal distribution."""
    from scipy import stats

    return [
        {
            "test": f"{folder} {name} {measure}",
            "t": (t := r[f"{measure}_t"]),
            "n": (n := r["n_paired"]),
            "p_printed": r[f"{measure}_p_approx"],
            "p_t": float(2 * stats.t.sf(abs(t), n - 1)),
            "p_normal": float(2 * stats.norm.sf(abs(t))),
            "place": f"reports/{folder}/summary.json",
        }
        for folder in VARIANTS
        for name, r in whole(root / "reports" / folder / "summary.json")["paired"].items()
        for measure in ("mean_pairwise_dist", "distinct_strategies")
    ]


def reference_rows(bands: pa.Table, splits: pa.Table) -> list[Row]:
    """The thinking model's accuracy as stated of the held-out set, as screened there, and on the whole pool."""
    found = query(
        """
        with screened as (select *, num_correct / group_size as share from bands where arm = 'thinking'),
             tall as (select 'all' as source, * exclude (source) from screened union all by name from screened)
        select source, avg(share) filter (split = 'heldout') as value, avg(share) as value_elsewhere
        from tall join splits using (problem_id) group by 1
        """,
        bands=bands,
        splits=splits.select(["problem_id", "split"]),
    ).to_pylist()
    by_source = {row.pop("source"): row for row in found}
    about = {
        "on": "the 100 held-out problems",
        "elsewhere": "the whole pool",
        "place": "reports/variance_band/thinking_g8/per_problem.jsonl, data/olympiad_pool/heldout_eval.jsonl",
    }
    return [
        {"figure": f"thinking pass@1 ({source})", "claimed": claimed} | by_source[source] | about
        for source, claimed in STATED_REFERENCE.items()
    ]


def coverage_rows(diversities: Mapping[str, pa.Table]) -> list[Row]:
    """About what share the encoder saw: its tokens over the mean trace length, problem by problem. No bound, for traces
    of one problem differ in length."""
    share = f"avg(least(1.0, {ENCODER_TOKENS - 2} / num_tokens)) as coverage"
    return [row | {"basis": "lengths"} for folder in diversities for row in _by_policy(diversities, folder, share)]


def diversity_rows(diversities: Mapping[str, pa.Table]) -> list[Row]:
    """Diversity by policy and window; where two windows of the same traces were measured, how far they differ."""
    means = "avg(diversity) as diversity, avg(share_correct) as share_correct"
    twins = query(
        """
        select arm, any_value(b."window") as same_as, max(abs(a.diversity - b.diversity)) as largest_change
        from a join b using (arm, problem_id) group by arm
        """,
        a=diversities["diversity_analysis_longhead"],
        b=diversities["diversity_analysis"],
    ).to_pylist()
    twin = {("diversity_analysis_longhead", row["arm"]): row for row in twins}
    return [
        row | twin.get((folder, row["arm"]), {})
        for folder in diversities
        for row in _by_policy(diversities, folder, means)
    ]


def _by_policy(diversities: Mapping[str, pa.Table], folder: str, figures: str) -> list[Row]:
    sql = f'select arm, "window", {figures} from t group by all order by all'
    about = {"problems": VARIANTS[folder][0], "place": f"reports/{folder}/per_problem.jsonl"}
    return [row | about for row in query(sql, t=diversities[folder]).to_pylist()]


def interval_rows(root: Path, evaluations: Mapping[str, pa.Table], draws: int, seed: int) -> list[Row]:
    """The printed Wilson intervals over rollouts beside intervals over problems."""
    rows = []
    for folder, groups in evaluations.items():
        s = whole(root / "reports" / folder / "summary.json")
        share = np.array(groups["num_correct"].to_pylist()) / np.array(groups["group_size"].to_pylist())
        interval = bootstrap_mean(share, draws, seed)
        if interval is None:
            continue
        low, high = s["wilson_ci95"]
        rows.append(
            {
                "figure": f"hit rate of {s['tag']}",
                "n": s["total_samples"],
                "problems": len(share),
                "low": low,
                "high": high,
                "low_problems": interval.low,
                "high_problems": interval.high,
                "place": f"reports/{folder}/summary.json",
            }
        )
    return rows


def with_truncation(rows: list[Row], tokens: Mapping[str, Any]) -> list[Row]:
    """Designs with a lower bound of the truncated share, where the token table gives one away: if a bucket's median
    length is the cap, at least half of the bucket was cut."""
    benches = {"MATH-500 L5": "math", "AIME 2024+2025, 20": "aime"}
    fields = {"panel": "panel_tokens_median", "thinking": "think_tokens_median"}
    for row in rows:
        bench, field = tokens.get(benches.get(row["problems"], "")), fields.get(row["arm"])
        cap = 16_384 if row["arm"] == "thinking" else row["max_tokens"]
        if bench is None or field is None or cap is None:
            continue
        parts = [b for name, b in bench["buckets"].items() if name != "all_paired"]
        cut = sum(b["n"] / 2 for b in parts if b[field] >= cap)
        row |= {"truncated": cut / bench["n_paired"], "truncated_bound": True} if cut else {}
    return rows


def evaluated_rows(evaluations: Mapping[str, pa.Table], pools: pa.Table) -> list[Row]:
    """How many of the AIME problems that were evaluated stand in each training pool. Schema: EVALUATED."""
    rows = query(
        """
        with asked as (
            select distinct replace(problem_id, 'aime', 'aime_') as problem_id from groups where source like 'AIME%'),
        named as (select replace(problem_id, '__', '_') as problem_id, pool from pools where pool like '%_train')
        select pool, count(asked.problem_id) as count, (select count(*) from asked) as n
        from named left join asked using (problem_id) group by pool order by pool
        """,
        groups=pa.concat_tables(evaluations.values()),
        pools=pools,
    ).to_pylist()
    folder = "reports/eval_aime_vibecheck"
    return [
        row | {"problems": "AIME 2024+2025, 20", "place": f"{folder}, data/olympiad_pool/{row['pool']}.jsonl"}
        for row in rows
    ]


# The run log and the series: where runs stopped, what was noted of the grader, counts in prose that the rows do not
# have, a trend that is its last point, and a comparison at equal tokens.

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
    halted = {
        "run": "GSM8K",
        "requested": run["total_steps"],
        "executed": max(int(name[1]) for name in map(re.compile(r"step(\d+)_metrics").match, run) if name),
        "stopped_at": run["halted"]["stopped_at_step"],
        "resumed_from": run["resumed"]["start_batch"],
        "reason": run["halted"]["reason"],
    }
    extended = {
        "run": "GSM8K, extended",
        "requested": ended["target_max_steps_requested"],
        "executed": ended["final_batch"],
        "reason": ended["completion_status"].replace("_", " "),
    }
    return [row | {"place": LOG} for row in (halted, extended)]


def note_rows(root: Path) -> list[Row]:
    """Notes of the run log on what the grader marked right, and counts in its prose that its own files do not have."""
    log = whole(root / LOG)
    text = json.dumps(log, ensure_ascii=False)
    said = [
        ("grader_artefact", f"the log calls a problem that the panel saves a probable grader artefact: {found[1]}")
        for found in ARTEFACT.finditer(text)
    ]
    said += [
        ("prose_count", f"the log says that {n} of {planned} problems were reached, and the file has {kept} of them")
        for n, planned, kept in REACHED.findall(text)
        if n != kept
    ]
    said += [("log_contradicts", one) for one in _against_itself(log, text)]
    return [{"code": code, "said": one, "place": LOG} for code, one in said]


def _against_itself(log: Row, text: str) -> list[str]:
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
    return rows


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
    lengths = diversities["diversity_analysis_aime"].to_pylist()
    tokens, other_tokens = (
        float(np.mean([r["num_tokens"] for r in lengths if r["arm"] == arm])) for arm in ("panel", "thinking")
    )
    k = int(min(evaluations[EQUAL[0]]["group_size"].to_pylist()))
    other_k = max(1, int(k * tokens / other_tokens))
    estimate, other_estimate = (
        float(
            pass_at_k(evaluations[of]["group_size"].to_numpy(), evaluations[of]["num_correct"].to_numpy(), [n]).mean()
        )
        for of, n in zip(EQUAL, (k, other_k), strict=True)
    )
    return [
        {
            "arm": "panel",
            "other": "thinking",
            "problems": "AIME 2024+2025, 20",
            "k": k,
            "other_k": other_k,
            "estimate": estimate,
            "other_estimate": other_estimate,
            "tokens": k * tokens,
            "other_tokens": other_k * other_tokens,
            "place": f"reports/{EQUAL[0]}/summary.json, reports/{EQUAL[1]}/summary.json,"
            " reports/diversity_analysis_aime/per_problem.jsonl",
        }
    ]


# The published token table, whose rollouts were not published.

PARTS = ("both_correct", "panel_only", "thinking_only", "neither")


def token_checks(name: str, bench: Mapping[str, Any], correct: Mapping[str, int], draws: int) -> list[Row]:
    """Columns of TokenChecks for one benchmark. correct: correct rollouts per arm in the evaluation's own summary, of
    `draws` paired ones where its n is the same."""
    buckets = bench["buckets"]
    every, parts = buckets["all_paired"], [buckets[p] for p in PARTS]
    both, panel, thinking, _ = (p["n"] for p in parts)
    printed = {arm: bench[f"{arm}_correct_count"] for arm in correct}
    more = "the evaluation has more rollouts a problem than were paired"
    told: list[tuple[str, float, float, str]] = [
        ("buckets add up to all pairs", every["n"], sum(p["n"] for p in parts), ""),
        ("pairs are problems × rollouts", bench["n_paired"], draws, ""),
        ("panel correct = both + panel only", printed["panel"], both + panel, ""),
        ("thinking correct = both + thinking only", printed["thinking"], both + thinking, ""),
        ("longer-in adds up", every["thinking_longer_in"], sum(p["thinking_longer_in"] for p in parts), ""),
    ]
    for arm, field in (("panel", "panel_tokens_mean"), ("thinking", "think_tokens_mean")):
        mean = sum(p[field] * p["n"] for p in parts) / every["n"]
        cost, follows = bench["cost_per_correct"][f"{arm}_tokens_per_correct"], every[field] * every["n"] / printed[arm]
        told += [
            (f"{arm} mean of all pairs = weighted mean of buckets", every[field], mean, ""),
            (f"{arm} tokens per correct", cost, follows, ""),
            (
                f"{arm} correct count = its evaluation's",
                printed[arm],
                correct[arm],
                more if correct[arm] != printed[arm] else "",
            ),
        ]
    for b in buckets.values():
        ordered = [b["ratio_min"], b["ratio_geomean"], b["ratio_mean"], b["ratio_max"]]
        ratio = b["think_tokens_mean"] / b["panel_tokens_mean"]
        told += [
            (f"{b['name']}: global ratio = ratio of means", b["global_ratio"], ratio, ""),
            (f"{b['name']}: share longer", b["thinking_longer_frac"], b["thinking_longer_in"] / b["n"], ""),
            (f"{b['name']}: min ≤ geometric mean ≤ mean ≤ max", 1.0, float(ordered == sorted(ordered)), ""),
        ]
    rows = [
        {"bench": name, "check": check, "printed": float(one), "follows": float(other), "detail": detail}
        | {"holds": math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)}
        for check, one, other, detail in told
    ]
    return [*rows, _wilcoxon(name, bench["wilcoxon_both_correct"])]


def _wilcoxon(name: str, w: Mapping[str, Any]) -> Row:
    """The printed p is that of W's normal approximation over draws, as if draws of one problem were independent."""
    from scipy.stats import norm

    n = w["n_nonzero"]
    z = (w["statistic"] - n * (n + 1) / 4) / math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    p = float(2 * norm.sf(abs(z)))
    return {
        "bench": name,
        "check": "Wilcoxon p follows from its statistic and n",
        "printed": w["pvalue"],
        "follows": p,
        "holds": math.isclose(p, w["pvalue"], rel_tol=0.02),
        "detail": "normal approximation without ties; the pairs are draws, not problems",
    }
