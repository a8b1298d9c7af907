"""The results of the studies in examples/, run as a reader runs them and written down beside each.

    python -m benchmarks.examples NAME --root DIR

Runs examples/NAME/study.toml, or each question that its matrix asks, and writes examples/NAME/result.md: the answer in
words and the rows of named queries. What the store DIR holds already is reused. Refused in a checkout with changes: a
result names the commit that made it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

from flows.study.asked import questions_of
from storage.artifacts.provenance import code_here
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.reading.query_cache import ask, reports

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
#: query → its columns that are written down.
SHOWN = {
    "report_summary": (
        "arm",
        "problems",
        "variance",
        "heldout_before",
        "heldout_after",
        "gain",
        "gain_low",
        "gain_high",
        "diversity_before",
        "diversity_after",
    ),
    "report_diversity_policies": ("arm", "step", "n", "diversity", "num_tokens", "correct_share", "trace_rate"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(p.parent.name for p in EXAMPLES.glob("*/study.toml")))
    parser.add_argument("--root", type=Path, required=True)
    args = parser.parse_args()
    code = code_here()
    if code.endswith("+dirty"):
        parser.error(f"the checkout has changes ({code}): commit them first")
    file = EXAMPLES / args.name / "study.toml"
    studies = [f"{file}/{question}" for question in questions_of(str(file))] or [str(file)]
    parts = [part for study in studies for part in _of(study, args.root.resolve())]
    command = f"python -m benchmarks.examples {args.name} --root DIR"
    head = [
        f"# Result of {args.name}",
        "",
        f"Made by `{command}` at commit {code}; a cell is a query's, unrounded ones to",
    ]
    target = file.with_name("result.md")
    target.write_text("\n".join([*head, "three decimals.", *parts]) + "\n")
    print(target)


def _of(study: str, root: Path) -> list[str]:
    asked = f"examples/{Path(study.split('.toml')[0]).parent.name}/study.toml{study.split('.toml')[1]}"
    words = [sys.executable, "-m", "varband", "run", asked, "--root", str(root)]
    subprocess.run(words, cwd=EXAMPLES.parent, check=True)
    store = Store(root)
    newest = max(reports(root), key=lambda one: store.manifest(Ref.parse(one.ref)).provenance.created).ref
    page = (store.files(Ref.parse(newest)) / "report.md").read_text()
    answer = page.split("## The answer\n")[1].split("\n## ")[0].strip()
    parts = ["", f"## `varband run {asked}`", "", answer]
    for query, columns in SHOWN.items():
        parts += ["", f"`varband report --query {query.removeprefix('report_')}`:", ""]
        parts += _table(ask(root, newest, query).to_pylist(), columns)
    return parts


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> list[str]:
    there = [c for c in columns if any(row.get(c) is not None for row in rows)]
    lines = [f"| {' | '.join(there)} |", "|" + "---|" * len(there)]
    return lines + [f"| {' | '.join(_cell(row[c]) for c in there)} |" for row in rows]


def _cell(value: object) -> str:
    """
    >>> [_cell(v) for v in (0.12345, None, 7, "panel")]
    ['0.123', '–', '7', 'panel']
    """
    return "–" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
