"""Print the size of the code: lines and files by part, import circles and import contracts, each beside its limit.

    python -m benchmarks.size

Exit code 1 if a limit is exceeded.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grimp
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

REPO = Path(__file__).resolve().parents[1]
SOURCE = ("cli", "dashboards", "flows", "storage", "tasks", "varband")


def tracked(*folders: str) -> list[Path]:
    """Python files under version control."""
    words = ["git", "ls-files", "--", *(f"{folder}/**.py" for folder in folders)]
    listed = subprocess.run(words, cwd=REPO, capture_output=True, text=True, check=True).stdout.splitlines()
    return [REPO / name for name in listed if (REPO / name).exists()]


def lines(files: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def circles() -> list[list[str]]:
    """Groups of modules that import each other, directly or through others, wherever in a file an import stands."""
    graph = grimp.build_graph(*SOURCE, cache_dir=None, exclude_type_checking_imports=True)
    names = sorted(graph.modules)
    place = {name: i for i, name in enumerate(names)}
    edges = [(place[a], place[b]) for a in names for b in graph.find_modules_directly_imported_by(a)]
    rows, columns = np.array(edges).T
    matrix = coo_array((np.ones(len(edges)), (rows, columns)), shape=(len(names), len(names)))
    _, labels = connected_components(matrix, directed=True, connection="strong")
    groups = [label for label, count in Counter(labels.tolist()).items() if count > 1]
    return [[name for name in names if labels[place[name]] == group] for group in groups]


def contract_lines() -> int:
    text = (REPO / "pyproject.toml").read_text(encoding="utf-8")
    part = text[text.index("[tool.importlinter]") :].split("\n[tool.")[0]
    return sum(1 for line in part.splitlines() if line.strip())


def figures() -> Iterator[tuple[str, int, int]]:
    """Yield (name, value, limit)."""
    source = tracked(*SOURCE)
    yield ("lines of source", lines(source), 37_000)
    yield ("files of source", len(source), 250)
    yield ("lines of the longest file", max(len(path.read_text().splitlines()) for path in source), 600)
    yield ("lines of tests", lines(tracked("tests")), 18_000)
    yield ("lines of benchmarks", lines(tracked("benchmarks")), 2_000)
    yield ("lines of import contracts", contract_lines(), 80)
    yield ("modules in import circles", sum(map(len, circles())), 0)


def main() -> None:
    found = list(figures())
    for name, value, limit in found:
        print(f"{name:<42} {value:>7,}   limit {limit:>6,}   {'met' if value <= limit else 'exceeded'}")
    for circle in circles():
        print(f"import circle: {' '.join(circle)}")
    sys.exit(any(value > limit for _, value, limit in found))


if __name__ == "__main__":
    main()
