"""A page of results that can be committed: a run's summaries in small Parquet files, and a page made from them alone.

    python -m benchmarks.results collect STORE DIR [--report REF]    figures' rows, provenance, a few rollouts → DIR
    python -m benchmarks.results page DIR                            DIR.md, with tables and drawings

DIR holds no weights and no rollout text but two examples an arm. The figures are those of the report, by the same
queries; intervals are in the rows.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.reading.catalog import lineage
from storage.reading.figures import SECTIONS, styles
from storage.reading.recipes import report_inputs
from storage.reading.views import helper_tables, inputs_of, views
from storage.sql import query
from tasks.report.drawings import draw
from tasks.report.findings import answer, caveats
from tasks.report.style import standing_alone
from tasks.report.tables import shown

MAX_ROWS, MAX_TEXT = 24, 1200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    first = verbs.add_parser("collect")
    first.add_argument("store", type=Path)
    first.add_argument("folder", type=Path)
    first.add_argument("--report", help="which report of the store; else the newest")
    verbs.add_parser("page").add_argument("folder", type=Path)
    args = parser.parse_args()
    try:
        if args.verb == "collect":
            collect(Store(args.store), args.folder, args.report)
        else:
            print(page(args.folder))
    except UserError as error:
        parser.exit(error.exit_code, f"results: {error}\n")


def collect(store: Store, folder: Path, wish: str | None) -> None:
    """Errors: UserError if the store has no such report, or what it was made from is gone."""
    reports = sorted(store.refs("report"), key=lambda ref: store.manifest(ref).provenance.created)
    if wish:
        reports = [ref for ref in reports if str(ref) == wish]
    if not reports:
        raise UserError(f"{store.root} holds no report{f' {wish}' if wish else ''}: finish a run first")
    report = reports[-1]
    recipe: Any = store.manifest(report).recipe
    arms, inputs = recipe.arguments["arms"], report_inputs(recipe)
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("*.parquet"), *folder.glob("*.svg")]:
        old.unlink()
    with views(inputs_of(store, inputs), helper_tables(inputs, arms)) as asked:
        for figure in (f for s in SECTIONS for f in s.figures if inputs.get(f.sources[0])):
            table = asked.ask(figure.query)
            if table.num_rows:
                pq.write_table(table, folder / f"{figure.name}.parquet", compression="zstd")
        said, warned = answer(asked.ask), caveats(asked.ask)
    pq.write_table(_examples(store, inputs), folder / "examples.parquet", compression="zstd")
    pq.write_table(_attempts(store, str(report)), folder / "attempts.parquet", compression="zstd")
    about = {
        "profile": recipe.arguments["profile"],
        "model": recipe.arguments["model"],
        "arms": arms,
        "purpose": recipe.arguments["purpose"],
        "question": recipe.arguments["question"],
        "report": str(report),
        "answer": said,
        "caveats": warned,
        "made": _made(store, report),
    }
    (folder / "about.json").write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    print(f"{folder}: {sum(f.stat().st_size for f in folder.iterdir()):,} bytes from {report}")


def _examples(store: Store, inputs: dict[str, list[str]]) -> pa.Table:
    """For each arm after training, one correct and one wrong rollout, the first by problem."""
    finals = pa.concat_tables(
        [
            store.read(Ref.parse(ref)).select(
                ["arm", "step", "problem_id", "completion", "verdict", "correct", "rollout"]
            )
            for ref in inputs["final"]
        ]
    )
    problems = store.read(Ref.parse(inputs["pool"][0]), ["problem_id", "problem", "gold"])
    return query(
        f"""
        select arm, step, problem, gold, verdict, left(completion, {MAX_TEXT}) as completion
        from finals join problems using (problem_id)
        qualify step = max(step) over (partition by arm)
            and row_number() over (partition by arm, step, correct order by problem_id, rollout) = 1
        order by arm, correct desc
        """,
        finals=finals,
        problems=problems,
    )


def _attempts(store: Store, report: str) -> pa.Table:
    """The recorded runs of this study up to the one that made the report, oldest first."""
    runs = [json.loads(path.read_text()) for path in (store.root / "runs").glob("*.json")]
    last = next((r for r in runs if r["report"] == report), None)
    attempts = [r for r in runs if last and r["profile"] == last["profile"] and r["started"] <= last["started"]]
    schema = pa.schema(
        [
            ("state", pa.string()),
            ("why", pa.string()),
            ("started", pa.string()),
            ("stages_done", pa.int64()),
            ("stages", pa.int64()),
            ("attempts", pa.int64()),
        ]
    )
    rows = [{name: r.get(name) for name in schema.names} for r in sorted(attempts, key=lambda r: r["started"])]
    return pa.Table.from_pylist([r | {"why": r["why"].splitlines()[0] if r["why"] else ""} for r in rows], schema)


def _made(store: Store, report: Ref) -> dict[str, Any]:
    """When, where and with which versions everything behind the report was made."""
    behind = [store.manifest(ref).provenance for ref in sorted({ref for _, ref, _ in lineage(store, report)})]
    notes = [p.notes for p in behind]
    tokens = sum(int(n.get("sampled_tokens", 0)) for n in notes)
    return {
        "from": min(p.created for p in behind),
        "to": max(p.created for p in behind),
        "hours": round(sum(p.seconds for p in behind) / 3600, 2),
        "sampled_tokens": tokens,
        "hardware": sorted({p.hardware for p in behind}),
        "code": sorted({p.code for p in behind}),
        "engines": sorted({n["engine"] for n in notes if "engine" in n}),
        "packages": {
            name: sorted({p.packages[name] for p in behind if name in p.packages})
            for p in behind
            for name in p.packages
        },
    }


def page(folder: Path) -> Path:
    """Write `folder`.md from the folder alone. Errors: UserError if it was not collected."""
    if not (folder / "about.json").is_file():
        raise UserError(f"{folder} holds no about.json: collect a run into it first")
    about = json.loads((folder / "about.json").read_text())
    made = about["made"]
    attempts = pq.read_table(folder / "attempts.parquet").to_pylist()
    lines = [
        f"# Results of the study {about['profile']} on the model {about['model']}",
        "",
        about["question"],
        "",
        f"_{about['purpose']}_. Made by `python -m benchmarks.results page` from the files beside this page.",
        "",
        *(f"{said}\n" for said in about["answer"]),
        *(["## What can and cannot be concluded", ""] if about["caveats"] else []),
        *(f"> {warned}\n" for warned in about["caveats"]),
        "## How it was made",
        "",
        f"{made['hours']:g} hours of stages between {made['from'][:16]} and {made['to'][:16]} UTC on"
        f" {', '.join(made['hardware'])}; {made['sampled_tokens']:,} tokens sampled by {', '.join(made['engines'])};"
        f" code {', '.join(made['code'])}. {_interrupted(attempts)}",
        "",
        *_table(pa.Table.from_pylist(attempts)),
        "Versions: " + ", ".join(f"{n} {' and '.join(v)}" for n, v in sorted(made["packages"].items())) + ".",
    ]
    for section in SECTIONS:
        figures = [f for f in section.figures if (folder / f"{f.name}.parquet").exists()]
        lines += ["", f"## {section.title}", *(["", section.lead] if section.lead else [])] if figures else []
        for figure in figures:
            table = pq.read_table(folder / f"{figure.name}.parquet")
            lines += ["", f"### {figure.title}", "", figure.caption, ""]
            drawn = draw(figure.chart, table.to_pylist(), styles(about["arms"]))
            for number, one in enumerate(re.findall(r"<svg.*?</svg>", drawn or "", re.DOTALL), 1):
                name = f"{figure.name}-{number}.svg" if number > 1 else f"{figure.name}.svg"
                (folder / name).write_text(standing_alone(one))
                lines += [f"![{figure.title}]({folder.name}/{name})", ""]
            lines += _table(table)
            if table.num_rows > MAX_ROWS:
                lines += [f"{MAX_ROWS} of {table.num_rows} rows; all are in `{folder.name}/{figure.name}.parquet`."]
    lines += ["", "## Two rollouts of each arm after training", ""]
    for row in pq.read_table(folder / "examples.parquet").to_pylist():
        lines += [
            f"**{row['arm']}**, step {row['step']}: {row['problem']} (gold {row['gold']}) – {row['verdict']}",
            "",
            "```text",
            row["completion"].replace("```", "'''"),
            "```",
            "",
        ]
    out = folder.parent / f"{folder.name}.md"
    out.write_text("\n".join(lines).rstrip() + "\n")
    return out


def _interrupted(attempts: list[dict[str, Any]]) -> str:
    if not attempts:
        return "How often it was interrupted was not recorded."
    stops = [a for a in attempts if a["state"] != "finished"]
    if not stops and all(a["attempts"] == 1 for a in attempts):
        return "It ran without interruption."
    return (
        f"It was interrupted {len(stops)} times and resumed by the same command; every attempt is listed below. What was made"
        " before an interruption was kept and used."
    )


def _table(table: pa.Table) -> list[str]:
    as_shown = shown(table.slice(0, MAX_ROWS).to_pylist(), table.column_names)
    rule = ["--:" if numeric else "---" for numeric in as_shown.numeric]
    rows = [as_shown.columns, rule, *as_shown.rows]
    return [*("| " + " | ".join(c.replace("|", "\\|").replace("\n", " ") for c in row) + " |" for row in rows), ""]


if __name__ == "__main__":
    main()
