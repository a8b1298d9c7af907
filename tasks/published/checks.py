"""What the published files say about the design: the tables that the lints read (tasks.designs)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from storage.sql import query
from tasks.domain.statistics.shares import bootstrap_mean
from tasks.published.files import whole

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

    rows = []
    for folder in VARIANTS:
        paired = whole(root / "reports" / folder / "summary.json")["paired"]
        for name, r in paired.items():
            for measure in ("mean_pairwise_dist", "distinct_strategies"):
                t, n = r[f"{measure}_t"], r["n_paired"]
                rows.append(
                    {
                        "test": f"{folder} {name} {measure}",
                        "t": t,
                        "n": n,
                        "p_printed": r[f"{measure}_p_approx"],
                        "p_t": float(2 * stats.t.sf(abs(t), n - 1)),
                        "p_normal": float(2 * stats.norm.sf(abs(t))),
                        "place": f"reports/{folder}/summary.json",
                    }
                )
    return rows


def reference_rows(bands: pa.Table, splits: pa.Table) -> list[Row]:
    """The thinking model's accuracy as stated of the held-out set, as screened there, and on the whole pool."""
    rows = []
    for source, claimed in STATED_REFERENCE.items():
        found = query(
            """
            select avg(num_correct / group_size) filter (where split = 'heldout') as held,
                   avg(num_correct / group_size) as pool
            from bands join splits using (problem_id)
            where arm = 'thinking' and ($source = 'all' or bands.source = $source)
            """,
            {"source": source},
            bands=bands,
            splits=splits,
        ).to_pylist()[0]
        rows.append(
            {
                "figure": f"thinking pass@1 ({source})",
                "claimed": claimed,
                "on": "the 100 held-out problems",
                "value": found["held"],
                "elsewhere": "the whole pool",
                "value_elsewhere": found["pool"],
                "place": "reports/variance_band/thinking_g8/per_problem.jsonl, data/olympiad_pool/heldout_eval.jsonl",
            }
        )
    return rows


def coverage_rows(diversities: Mapping[str, pa.Table]) -> list[Row]:
    """About what share the encoder saw: its tokens over the mean trace length, problem by problem. No bound, for traces
    of one problem differ in length."""
    rows = []
    for folder, table in diversities.items():
        found = query(
            f"""
            select arm, "window", avg(least(1.0, {ENCODER_TOKENS - 2} / num_tokens)) as coverage
            from t group by all order by all
            """,
            t=table,
        ).to_pylist()
        rows += [
            r | {"problems": VARIANTS[folder][0], "basis": "lengths", "place": f"reports/{folder}/per_problem.jsonl"}
            for r in found
        ]
    return rows


def diversity_rows(diversities: Mapping[str, pa.Table]) -> list[Row]:
    """Diversity by policy and window; where two windows of the same traces were measured, how far they differ."""
    rows = []
    for folder, table in diversities.items():
        found = query(
            'select arm, "window", avg(diversity) as diversity, avg(share_correct) as share_correct from t group by all'
            " order by all",
            t=table,
        ).to_pylist()
        for row in found:
            twin = _twin(diversities, folder, row["arm"]) if folder.endswith("longhead") else {}
            rows.append(row | {"problems": VARIANTS[folder][0], "place": f"reports/{folder}/per_problem.jsonl"} | twin)
    return rows


def _twin(diversities: Mapping[str, pa.Table], folder: str, arm: str) -> Row:
    pair = query(
        """
        select any_value(b."window") as other, max(abs(a.diversity - b.diversity)) as change
        from a join b using (arm, problem_id) where arm = $arm
        """,
        {"arm": arm},
        a=diversities[folder],
        b=diversities["diversity_analysis"],
    ).to_pylist()[0]
    return {"same_as": pair["other"], "largest_change": pair["change"]}


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


def with_truncation(designs: pa.Table, tokens: Mapping[str, Any]) -> pa.Table:
    """Designs with a lower bound of the truncated share, where the token table gives one away: if a bucket's median
    length is the cap, at least half of the bucket was cut."""
    benches = {"MATH-500 L5": "math", "AIME 2024+2025, 20": "aime"}
    fields = {"panel": "panel_tokens_median", "thinking": "think_tokens_median"}
    rows = designs.to_pylist()
    for row in rows:
        bench, field = tokens.get(benches.get(row["problems"], "")), fields.get(row["arm"])
        cap = 16_384 if row["arm"] == "thinking" else row["max_tokens"]
        if bench is None or field is None or cap is None:
            continue
        parts = [b for name, b in bench["buckets"].items() if name != "all_paired"]
        cut = sum(b["n"] / 2 for b in parts if b[field] >= cap)
        row |= {"truncated": cut / bench["n_paired"], "truncated_bound": True} if cut else {}
    return pa.Table.from_pylist(rows, schema=designs.schema)


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
