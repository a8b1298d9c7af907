"""What the audit reads from the published files: the design of each run, the inputs of the checks (tasks.designs), and
whether the printed table of tokens agrees with itself."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.schemas import Designs
from storage.errors import UserError
from storage.estimates import percentile_ends, resample_means
from storage.sql import query

Row = dict[str, Any]
LOG = "data/multipersona_gsm8k/manifest.json"
MATH500, LEVEL5, AIME = "MATH-500 L1-L5, 50", "MATH-500 L5", "AIME 2024+2025, 20"
#: Folder of an evaluation → (arm, problem set).
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
#: The arms that the publication compares. All others are controls.
COMPARED = ("panel", "thinking")
GSM8K = ("step000060", "step000070", "step000080", "stepFinal_batch128")
#: Column of Designs → fields of a summary that may state it. The first one that is present counts.
STATED = {
    "model": ("model_name", "base_model"),
    "policy": ("sampler_path", "checkpoint", "base_model"),
    "num_problems": ("n_problems", "n_evaluated"),
    "planned_problems": ("n_test_requested",),
    "group_size": ("n_samples_per_problem",),
    "temperature": ("temperature",),
    "max_tokens": ("max_tokens",),
}
#: Folder of a diversity file → (problem set, {label: arm}).
VARIANTS = {
    "diversity_analysis": (
        MATH500,
        {
            "panel_postmath": "panel",
            "thinking": "thinking",
            "panel_premath": "panel_premath",
            "no_panel_postmath": "no_panel",
        },
    ),
    "diversity_analysis_longhead": (MATH500, {"panel_postmath": "panel", "thinking": "thinking"}),
    "diversity_analysis_aime": (AIME, {"panel_aime": "panel", "thinking_aime": "thinking"}),
}
PROXY = "reports/olympiad_panel_only/diversity_proxy.jsonl"


def parsed(path: Path) -> Any:
    """Return the value of a JSON file, or the values of a JSON Lines file. Raise UserError for another file."""
    try:
        text = path.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not the published file: {error}") from None


def designs(root: Path) -> pa.Table:
    """Return the designs. Schema: Designs. What a summary lacks comes from the run log, or is null."""
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
    """Return max_tokens by the tag of a run, as the run log gives it."""
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


def window_of(root: Path, folder: str) -> str:
    return f"head{parsed(root / 'reports' / folder / 'summary.json')['config']['trace_head_chars']}chars"


def test_rows(root: Path) -> list[Row]:
    """Return every printed p of a paired t-test, with the p of its t under Student's t and the normal distribution."""
    from scipy import stats

    rows = []
    for folder in VARIANTS:
        place = f"reports/{folder}/summary.json"
        for name, paired in parsed(root / place)["paired"].items():
            for measure in ("mean_pairwise_dist", "distinct_strategies"):
                t, n = paired[f"{measure}_t"], paired["n_paired"]
                p_t, p_normal = 2 * stats.t.sf(abs(t), n - 1), 2 * stats.norm.sf(abs(t))
                row = {"test": f"{folder} {name} {measure}", "t": t, "n": n, "p_t": p_t, "p_normal": p_normal}
                rows.append(row | {"p_printed": paired[f"{measure}_p_approx"], "place": place})
    return rows


def reference_rows(bands: pa.Table, splits: pa.Table) -> list[Row]:
    """Compare the thinking model's published held-out accuracy with its accuracy at screening, held-out and overall."""
    return query(
        """
        with stated(source, claimed) as (values ('all', 0.60), ('olympiadbench', 0.55), ('amc', 0.75)),
             screened as (
                select bands.source, split, num_correct / group_size as share
                from bands join splits using (problem_id) where arm = 'thinking')
        select 'thinking pass@1 (' || stated.source || ')' as figure, claimed::double as claimed,
            'the 100 held-out problems' as "on", avg(share) filter (split = 'heldout') as value,
            'the whole pool' as elsewhere, avg(share) as value_elsewhere,
            'reports/variance_band/thinking_g8/per_problem.jsonl, data/olympiad_pool/heldout_eval.jsonl' as place
        from stated join screened on stated.source in ('all', screened.source) group by stated.source, claimed
        """,
        bands=bands,
        splits=splits,
    ).to_pylist()


def diversity_rows(diversities: Mapping[str, pa.Table]) -> list[Row]:
    """Return diversity by policy and window, its difference from another window of the same traces, and the share that
    the encoder saw, from mean lengths in tokens. all-mpnet-base-v2 reads 384 tokens, of which two are special."""
    return query(
        """
        select m.arm, m."window", m.problems, 'reports/' || m.folder || '/per_problem.jsonl' as place,
            avg(m.diversity) as diversity, avg(m.share_correct) as share_correct,
            avg(least(1.0, 382 / m.num_tokens)) as coverage, 'lengths' as basis,
            any_value(other."window") as same_as, max(abs(m.diversity - other.diversity)) as largest_change
        from measured m left join measured other
            on m.folder = 'diversity_analysis_longhead' and other.folder = 'diversity_analysis'
            and (m.arm, m.problem_id) = (other.arm, other.problem_id)
        group by m.folder, m.arm, m."window", m.problems order by m.folder, m.arm
        """,
        measured=pa.concat_tables(
            table.append_column("folder", pa.repeat(name, len(table))).append_column(
                "problems", pa.repeat(VARIANTS[name][0], len(table))
            )
            for name, table in diversities.items()
        ),
    ).to_pylist()


def interval_rows(root: Path, evaluations: Mapping[str, pa.Table], draws: int, seed: int) -> list[Row]:
    """Return the printed Wilson intervals over rollouts, and the intervals over problems."""
    rows = []
    for folder, groups in evaluations.items():
        place = f"reports/{folder}/summary.json"
        s = parsed(root / place)
        share = np.array(groups["num_correct"]) / np.array(groups["group_size"])
        low, high = s["wilson_ci95"]
        row = {"figure": f"hit rate of {s['tag']}", "n": s["total_samples"], "low": low, "high": high}
        ends = percentile_ends(resample_means(share[:, None], draws, seed)[:, 0])
        row |= zip(("low_problems", "high_problems"), ends, strict=True)
        rows.append(row | {"problems": len(share), "place": place})
    return rows


def with_truncation(rows: list[Row], tokens: Mapping[str, Any]) -> list[Row]:
    """Add a lower bound of the truncated share to designs. The table of tokens gives the bound: if the median length of
    a bucket is the limit, at least half of the bucket was truncated."""
    benches = {LEVEL5: "math", AIME: "aime"}
    fields = {"panel": "panel_tokens_median", "thinking": "think_tokens_median"}
    for row in rows:
        bench, field = tokens.get(benches.get(row["problems"], "")), fields.get(row["arm"])
        limit = 16_384 if row["arm"] == "thinking" else row["max_tokens"]
        if bench is None or field is None or limit is None:
            continue
        parts = [b for name, b in bench["buckets"].items() if name != "all_paired"]
        if cut := sum(b["n"] / 2 for b in parts if b[field] >= limit):
            row |= {"truncated": cut / bench["n_paired"], "truncated_bound": True}
    return rows


def evaluated_rows(evaluations: Mapping[str, pa.Table], pools: pa.Table) -> list[Row]:
    """Return how many of the evaluated AIME problems each training pool has. Schema: EVALUATED."""
    return query(
        """
        with evaluated as (
            select distinct replace(problem_id, 'aime', 'aime_') as problem_id from groups where source like 'AIME%'),
        named as (select replace(problem_id, '__', '_') as problem_id, pool from pools where pool like '%_train')
        select pool, count(evaluated.problem_id) as count, (select count(*) from evaluated) as n, $problems as problems,
            'reports/eval_aime_vibecheck, data/olympiad_pool/' || pool || '.jsonl' as place
        from named left join evaluated using (problem_id) group by pool order by pool
        """,
        {"problems": AIME},
        groups=pa.concat_tables(evaluations.values()),
        pools=pools,
    ).to_pylist()


def stop_rows(root: Path) -> list[Row]:
    """Return trainings that did not run as requested: stopped and resumed, or ended before the last step."""
    log = parsed(root / LOG)
    run, ended = log["rl_run"], log["extend_160_run"]["training_completion"]
    steps = [int(name[1]) for name in map(re.compile(r"step(\d+)_metrics").match, run) if name]
    halted = {"run": "GSM8K", "requested": run["total_steps"], "executed": max(steps), "place": LOG}
    halted |= {"stopped_at": run["halted"]["stopped_at_step"], "resumed_from": run["resumed"]["start_batch"]}
    extended = {"run": "GSM8K, extended", "requested": ended["target_max_steps_requested"], "place": LOG}
    extended |= {"executed": ended["final_batch"], "reason": ended["completion_status"].replace("_", " ")}
    return [halted | {"reason": run["halted"]["reason"]}, extended]


def note_rows(root: Path) -> list[Row]:
    """Return the run log's remarks on the grader, and its statements that contradict its own figures. A check is a
    code, a place in the log, a pattern for the stated figures, a test whether they are wrong, and a note."""
    log = parsed(root / LOG)
    text = json.dumps(log, ensure_ascii=False)
    run, headline = log["rl_run"], log["project_status"]["headline_result"]
    start, high = run["baseline_step0"]["correct"], run["run_summary"]["run_highs"]["correct"]
    window = log["extend_160_run"]["window_81_90_means"]
    checks: list[tuple[str, str, str, Any, str]] = [
        (
            "grader_artefact",
            text,
            r"[^;,.]*probable grader art[ei]fact \(([^)]*)\)",
            lambda _: True,
            "the log calls a problem that the panel saves a probable grader artefact: {}",
        ),
        (
            "prose_count",
            text,
            r"reached (\d+)/(\d+) \((\d+) rollouts",
            lambda n, planned, kept: n != kept,
            "the log says that {} of {} problems were reached, and the file has {} of them",
        ),
        (
            "log_contradicts",
            headline["baseline_step0_training_batch"],
            r"~(0\.\d+) correct",
            lambda about: abs(float(about) - start) > 0.05,
            f"the log counts its improvement of {headline['absolute_improvement_correct_pp']} pp from about {{}} before"
            f" training, where its own step 0 gives {start:.3f}",
        ),
        (
            "log_contradicts",
            text,
            r"base-run peak was (0\.\d+) at step (\d+)",
            lambda _, step: int(step) != high["step"],
            "the log says that the first run was best at step {1} with {0}, and elsewhere at step"
            f" {high['step']} with {high['value']}",
        ),
        (
            "log_contradicts",
            window["note"],
            r"[Mm]ean correct (0\.\d+)",
            lambda mean: abs(float(mean) - window["correct"]) > 0.0005,
            f"the log gives steps 81 to 90 a mean of {window['correct']}, and {{}} in the note beside it",
        ),
        (
            "log_contradicts",
            text,
            r"\((\d+)d, (\d+) token cap",
            lambda *_: True,
            "the log takes the encoder for one of {} dimensions that reads {} tokens;"
            " all-mpnet-base-v2 has 768 and reads 384",
        ),
    ]
    notes = [
        (code, note.format(*found.groups()))
        for code, where, pattern, wrong, note in checks
        for found in re.finditer(pattern, where)
        if wrong(*found.groups())
    ]
    return [{"code": code, "said": note, "place": LOG} for code, note in dict.fromkeys(notes)]


def trend_rows(root: Path) -> list[Row]:
    """Return the change of a series from its first point to its last, and to its last but one."""
    return query(
        """
        with points as (
            select batch as x, ac_len_cv_within_group as y, row_number() over (order by batch desc) > 1 as before
            from rows)
        select 'length CV within groups' as series, min(x) as first_step, max(x) as last_step,
            max(x) filter (before) as before_step, arg_max(y, x) - arg_min(y, x) as change,
            arg_max(y, x) filter (before) - arg_min(y, x) as change_without_last, regr_slope(y, x) as slope,
            regr_slope(y, x) filter (before) as slope_without_last, $place as place
        from points
        """,
        {"place": PROXY},
        rows=pa.Table.from_pylist(parsed(root / PROXY)),
    ).to_pylist()


def equal_token_rows(evaluations: Mapping[str, pa.Table], diversities: Mapping[str, pa.Table]) -> list[Row]:
    """Return panel's pass@k on AIME at all its rollouts, and thinking's at equal tokens, in whole rollouts."""
    folders = ("eval_aime_vibecheck/aime_panel_postmath_n16", "eval_aime_vibecheck/aime_thinking_n16")
    places = [*(f"reports/{f}/summary.json" for f in folders), "reports/diversity_analysis_aime/per_problem.jsonl"]
    return query(
        """
        with each as (
            select avg(num_tokens) filter (arm = 'panel') as panel,
                avg(num_tokens) filter (arm = 'thinking') as thinking, (select min(group_size) from one) as k
            from lengths),
        sizes as (select *, greatest(1, floor(k * panel / thinking))::int as other_k from each)
        select 'panel' as arm, 'thinking' as other, $problems as problems, k, other_k,
            (select avg(pass_at_k(group_size, num_correct, k)) from one, sizes) as estimate,
            (select avg(pass_at_k(group_size, num_correct, other_k)) from two, sizes) as other_estimate,
            k * panel as tokens, other_k * thinking as other_tokens, $place as place
        from sizes
        """,
        {"problems": AIME, "place": ", ".join(places)},
        lengths=diversities["diversity_analysis_aime"],
        one=evaluations[folders[0]],
        two=evaluations[folders[1]],
    ).to_pylist()


def token_checks(name: str, bench: Mapping[str, Any], correct: Mapping[str, int], draws: int) -> list[Row]:
    """Return the columns of TokenChecks for one benchmark, whose rollouts were not published. correct: correct rollouts
    per arm, in the evaluation's own summary. draws: number of paired rollouts."""
    buckets = bench["buckets"]
    every, parts = buckets["all_paired"], [b for part, b in buckets.items() if part != "all_paired"]
    n = {part: b["n"] for part, b in buckets.items()}
    checks: list[tuple[str, float, float]] = [
        ("buckets add up to all pairs", every["n"], sum(b["n"] for b in parts)),
        ("pairs are problems × rollouts", bench["n_paired"], draws),
        ("longer-in adds up", every["thinking_longer_in"], sum(b["thinking_longer_in"] for b in parts)),
    ]
    details = {}
    for arm, field in (("panel", "panel_tokens_mean"), ("thinking", "think_tokens_mean")):
        printed, cost = bench[f"{arm}_correct_count"], bench["cost_per_correct"][f"{arm}_tokens_per_correct"]
        mean = sum(b[field] * b["n"] for b in parts) / every["n"]
        counted = f"{arm} correct count = its evaluation's"
        checks += [
            (f"{arm} correct = both + {arm} only", printed, n["both_correct"] + n[f"{arm}_only"]),
            (f"{arm} mean of all pairs = weighted mean of buckets", every[field], mean),
            (f"{arm} tokens per correct", cost, every[field] * every["n"] / printed),
            (counted, printed, correct[arm]),
        ]
        if correct[arm] != printed:
            details[counted] = "the evaluation has more rollouts a problem than were paired"
    for b in buckets.values():
        ordered = [b["ratio_min"], b["ratio_geomean"], b["ratio_mean"], b["ratio_max"]]
        ratio = b["think_tokens_mean"] / b["panel_tokens_mean"]
        checks += [
            (f"{b['name']}: global ratio = ratio of means", b["global_ratio"], ratio),
            (f"{b['name']}: share longer", b["thinking_longer_frac"], b["thinking_longer_in"] / b["n"]),
            (f"{b['name']}: min ≤ geometric mean ≤ mean ≤ max", 1.0, float(ordered == sorted(ordered))),
        ]
    # the printed p is W's normal approximation over draws; it treats draws of one problem as independent
    w = bench["wilcoxon_both_correct"]
    m = w["n_nonzero"]
    z = (w["statistic"] - m * (m + 1) / 4) / math.sqrt(m * (m + 1) * (2 * m + 1) / 24)
    wilcoxon = "Wilcoxon p follows from its statistic and n"
    checks.append((wilcoxon, w["pvalue"], math.erfc(abs(z) / math.sqrt(2))))
    details[wilcoxon] = "normal approximation without ties; the pairs are draws, not problems"
    return [
        {"bench": name, "check": check, "printed": float(one), "follows": float(other)}
        | {"detail": details.get(check, "")}
        | {"holds": math.isclose(one, other, rel_tol=0.02 if check == wilcoxon else 1e-9, abs_tol=1e-12)}
        for check, one, other in checks
    ]
