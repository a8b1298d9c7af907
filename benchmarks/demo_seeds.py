"""Does the demo learn? Several seeds of it, written down as docs/demo.md.

    python benchmarks/demo_seeds.py --root DIR [--seeds 0,1,2,3,4] [--at-once 2] [--out docs/demo.md]

DIR is a store; what it already holds is reused. at-once: processes; more than two put seeds side by side too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from flows.running.plan import execute
from flows.running.processes import make_arms_at_once
from flows.running.sessions import Charging
from flows.study.request import Request
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.reading.catalog import lineage
from storage.sql import query
from tasks.stage import Progress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("docs/demo.md"))
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--at-once", type=int, default=2)
    args = parser.parse_args()
    store, seeds = Store(args.root), tuple(map(int, args.seeds.split(",")))
    asked = Request(profile="demo", seeds=seeds, settings=(f"hardware.arms_at_once={args.at_once}",))
    study = asked.study(store)
    store.prepare()
    make_arms_at_once(study, store, Charging(run="demo-seeds"), _said)
    report = execute(study, store, _said)
    args.out.write_text(page(store, report))
    print(args.out)


def _said(event: Progress) -> None:
    print(event.event, event.title, event.detail, flush=True)


def page(store: Store, report: Ref) -> str:
    made = {ref.kind: ref for _, ref, _ in lineage(store, report)}
    curves, together = store.read(made["curves"]), store.read(made["over_seeds"])
    seeds = sorted({row["seed"] for row in store.read(report).to_pylist()})
    gains = query(
        "select arm, 100 * estimate as gain, 100 * low as low, 100 * high as high, n, seeds, method from curves"
        " where series = 'gain' and source = 'all' order by arm",
        curves=curves,
    ).to_pylist()
    lines = [
        f"# The demo over {len(seeds)} seeds",
        "",
        f"Made by `python benchmarks/demo_seeds.py --root DIR`: the `demo` profile with training seeds {seeds}; held-out",
        "100 synthetic problems, 8 rollouts each before and after 40 GRPO steps, on a CPU.",
        "",
        "| arm | seed | variance band | before | after | gain | diversity before → after | tokens per correct |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in store.read(report).to_pylist():
        lines.append(
            f"| {r['arm']} | {r['seed']} | {r['variance']} of {r['problems']} | {r['heldout_before']:.3f} |"
            f" {r['heldout_after']:.3f} | {100 * r['gain']:+.1f} pp | {r['diversity_before']:.3f} →"
            f" {r['diversity_after']:.3f} | {r['tokens_per_correct']:.0f} |"
        )
    lines += ["", "Gain in the held-out curve (step 0 to 40), over problems and training seeds:", ""]
    for g in gains:
        lines.append(
            f"- **{g['arm']}**: {g['gain']:+.1f} percentage points, 95 % interval {g['low']:+.1f} to {g['high']:+.1f}"
            f" ({g['n']} problems, {g['seeds']} seeds, {g['method']})"
        )
    lines += ["", "The seeds together, over all sources:", ""]
    lines += [
        f"- {row['metric']}, {row['arm']}{' over ' + row['other'] if row['other'] else ''}: {row['estimate']:.3f}, "
        + (row["reason"] or f"95 % interval {row['low']:.3f} to {row['high']:.3f}")
        for row in together.to_pylist()
        if row["source"] == "all" and row["estimate"] is not None
    ]
    lines += [
        "",
        "The problems are synthetic and the model was pretrained on traces with planted slips, so that there is something",
        "to learn in seconds. The figures show that the machinery learns; they say nothing about scaffolds.",
        "",
        f"Report: `{report}`.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
