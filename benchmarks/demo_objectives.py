"""Which objective keeps width? The profile `demo/objectives`, written down as docs/results/objectives-demo.md.

    python benchmarks/demo_objectives.py --root DIR [--objectives MaxRL,PKPO] [--profile demo/objectives] [--out FILE]

DIR is a store; what it already holds is reused, and a run that was killed goes on.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.running.plan import execute
from flows.study.asked import profile_named
from flows.study.request import Request
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.bands import Band
from storage.reading.catalog import lineage
from tasks.domain.grpo.types import BASELINE
from tasks.report.scatter import Spot, scatter
from tasks.stage import Progress

Row = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--profile", default="demo/objectives")
    parser.add_argument("--objectives", help="names of some; without it all of the profile")
    parser.add_argument("--out", type=Path, default=Path("docs/results/objectives-demo.md"))
    args = parser.parse_args()
    store = Store(args.root)
    every = len(profile_named(args.profile).objectives)
    asked = (f"objectives={args.objectives}",) if args.objectives else ()
    study = Request(profile=args.profile, settings=asked).study(store)
    store.prepare()
    report = execute(study, store, _said)
    made = {ref.kind: ref for _, ref, _ in lineage(store, report)}
    rows = store.read(made["objectives"]).to_pylist()
    figure = args.out.with_suffix(".svg")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.write_text(alone(points(rows) or ""))
    bands = store.read(made["bands"], ["band"])["band"].to_pylist()
    args.out.write_text(page(args.profile, every, rows, bands, figure.name, report))
    print(args.out)


def _said(event: Progress) -> None:
    print(event.event, event.title, event.detail, flush=True)


def alone(drawn: str) -> str:
    """An SVG as a file of its own."""
    look = (
        "text{font:11px sans-serif;fill:#1C1E21}.tie,.grid,.axis{fill:none;stroke:#D9DDE2}.tie{stroke:#9AA3AD}"
        ".axis{stroke:#5C636B}.m{fill:#0072B2}"
    )
    head, rest = drawn.split(">", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg"><style>{look}</style>{rest}'


def points(rows: Sequence[Row]) -> str | None:
    """pass@1 gain against pass@k gain, k the largest."""
    found = {(row["objective"], row["metric"]): row for row in rows}
    largest = max((int(metric[5:]) for _, metric in found if metric.startswith("pass@")), default=1)

    def end(row: Row) -> tuple[float, float | None, float | None]:
        low, high = (None if row[name] is None else 100 * row[name] for name in ("change_low", "change_high"))
        return 100 * row["change"], low, high

    spots = [
        Spot(name, end(row), end(found[name, f"pass@{largest}"]))
        for (name, metric), row in found.items()
        if metric == "pass@1"
    ]
    return scatter(spots, 0, "gain in pass@1, points", f"gain in pass@{largest}, points")


def page(profile: str, every: int, rows: Sequence[Row], bands: Sequence[str], figure: str, report: Ref) -> str:
    """bands: of every problem that was screened."""
    by_objective: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        by_objective[row["objective"]][row["metric"]] = row
    first = next(iter(by_objective.values()))
    shown = [metric for metric in first if "@" in metric]
    counted = [metric for metric in first if "among" in metric]
    seeds, problems = first["pass@1"]["seeds"], first["pass@1"]["n"]
    others = [name for name in by_objective if name != BASELINE]
    tokens = [found["tokens"]["after"] for found in by_objective.values()]
    some = "" if len(others) == every else f" --objectives '{','.join(others)}'"
    lines = [
        f"# Objectives compared: {profile}",
        "",
        f"Made by `python benchmarks/demo_objectives.py --root DIR{some}`:",
        f"{len(others)} of the profile's {every} objectives beside the study's own, {seeds} seeds each, {problems} held-out problems;",
        f"the same start and problems, and {profile_named(profile).training.token_budget:,} sampled tokens: a training ends at the first step",
        f"that reaches them, so that it has {min(tokens):,.0f} to {max(tokens):,.0f} in the mean over seeds (the last",
        "table; steps of several turns are longer).",
        f"Of {len(bands)} problems screened for training {bands.count(Band.ALL_ZERO) / len(bands):.0%} are `all_zero`:",
        "no rollout of theirs was right before training.",
        "Formulas: docs/training.md.",
        "",
        *sentences(rows),
        *(
            f"- {' and '.join(names)} are one here: on these problems they trained alike."
            for names in alike(by_objective)
        ),
        "",
        f"![gains]({figure})",
        "",
        "Change in points from before training to after, 95 % interval over problems and seeds.",
        "",
        "| objective | " + " | ".join(shown) + " |",
        "|---|" + "---|" * len(shown),
    ]
    for name, found in by_objective.items():
        lines.append(f"| {name} | " + " | ".join(_change(found[m]) for m in shown) + " |")
    lines += [
        "",
        f"Against the study's own objective (`{BASELINE}`) after training, and p after Holm over all comparisons, which are",
        "all of this table: points of pass@k, numbers of answers and of ways.",
        "",
        "| objective | " + " | ".join((*shown, *counted)) + " |",
        "|---|" + "---|" * len((*shown, *counted)),
    ]
    for name, found in by_objective.items():
        if name != BASELINE:
            lines.append(f"| {name} | " + " | ".join(_over(found[m]) for m in (*shown, *counted)) + " |")
    about = [*counted, "entropy", "live_groups", "signal_groups"]
    lines += [
        "",
        "Width, and what training says of itself (its first step → its last five), before → after. entropy: of the next",
        "token, in nats, mean over the tokens that a step trains on; live_groups: share of a step's groups with a right and a",
        "wrong rollout; signal_groups: with an advantage that is not 0.",
        "",
        "| objective | " + " | ".join(about) + " | tokens a training |",
        "|---|" + "---|" * (len(about) + 1),
    ]
    for name, found in by_objective.items():
        cells = [f"{_number(found[m]['before'])} → {_number(found[m]['after'])}" for m in about]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {found['tokens']['after']:,.0f} |")
    lines += [
        "",
        "The problems are synthetic and the model was pretrained on traces with planted slips: the figures show that the",
        "comparison works and how honest it is with three seeds; they say nothing about objectives at scale.",
        "",
        f"Report: `{report}`.",
        "",
    ]
    return "\n".join(lines)


def sentences(rows: Sequence[Row]) -> list[str]:
    """What can be said after correction; that nothing can is a result."""
    judged = [row for row in rows if row["p_adjusted"] is not None]
    apart = [row for row in judged if row["p_adjusted"] < 0.05]
    if not apart:
        return [
            f"No objective differs from the study's own in any of {len(judged)} comparisons after correction (Holm)."
        ]
    return [
        f"- **{row['objective']}**: {row['metric']} {'above' if row['over_baseline'] > 0 else 'below'} the study's own,"
        f" p = {row['p_adjusted']:.2g} after Holm over {len(judged)} comparisons"
        for row in sorted(apart, key=lambda row: (row["metric"], row["p_adjusted"]))
    ]


def alike(by_objective: Mapping[str, Mapping[str, Row]]) -> list[list[str]]:
    """Objectives whose every figure is the same."""
    found: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for name, metrics in by_objective.items():
        found[tuple((metric, row["after"]) for metric, row in metrics.items())].append(name)
    return [names for names in found.values() if len(names) > 1]


def _change(row: Row) -> str:
    interval = (
        "" if row["change_low"] is None else f" [{100 * row['change_low']:+.1f}, {100 * row['change_high']:+.1f}]"
    )
    return f"{100 * row['before']:.1f} → {100 * row['after']:.1f}: {100 * row['change']:+.1f}{interval}"


def _over(row: Row) -> str:
    scale, form = (100, "+.1f") if "@" in row["metric"] else (1, "+.2f")
    at, *ends = (
        None if row[name] is None else format(scale * row[name], form)
        for name in ("over_baseline", "over_low", "over_high")
    )
    interval = "" if None in ends else f" [{', '.join(map(str, ends))}]"
    told = "" if row["p_adjusted"] is None else f", p {row['p_adjusted']:.2g}"
    return f"{at}{interval}{told}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    main()
