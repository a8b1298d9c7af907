"""The DAG behind a report in compact form: similar artifacts share a box, and implied edges are omitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

from storage.reading.query_cache import Manifest
from storage.reading.recipes import arm_of

COLOURS = {"made": "#00734f", "reused": "#0072B2", "kept": "#6b747e"}


def dot_graph(report: str, manifests: Mapping[str, Manifest], states: Mapping[str, str]) -> str:
    """Return the ancestors of a report as a DOT graph. states: `made`, `reused` or `kept` by ref. A box holds the
    artifacts of one role and arm: its role is the report's input name, else their kind; its colour is the most frequent
    state."""
    roles = {ref: name for name, refs in manifests[report].recipe.inputs.items() for ref in refs}
    inputs = {ref: {str(r) for r in m.input_refs} & manifests.keys() for ref, m in manifests.items()}

    @cache
    def arm(ref: str) -> str:
        """Return the policy's arm, else the arm shared by all inputs, else an empty text."""
        shared = {arm(one) for one in inputs[ref]} - {""}
        return arm_of(manifests[ref].recipe) or (shared.pop() if len(shared) == 1 else "")

    key = {ref: f"{roles.get(ref, m.kind)} {arm(ref)}".strip() for ref, m in manifests.items()}
    members: dict[str, list[str]] = {}
    for ref, of in key.items():
        members.setdefault(of, []).append(ref)
    boxes = {}
    for of, refs in members.items():
        rows, times = sum(manifests[ref].rows for ref in refs), f" ×{len(refs)}" if len(refs) > 1 else ""
        [(state, _)] = Counter(states[ref] for ref in refs).most_common(1)
        boxes[of] = (f"{of}{times}\\n{rows:,} rows", COLOURS[state])
    edges = reduced({of: {key[one] for ref in refs for one in inputs[ref]} - {of} for of, refs in members.items()})
    return digraph(boxes, [(source, of) for of in edges for source in sorted(edges[of])], "LR")


def digraph(boxes: Mapping[str, tuple[str, str]], edges: Iterable[tuple[str, str]], direction: str = "TB") -> str:
    """Return a graph in DOT. boxes: label and colour by name. Labels contain no model output."""
    lines = [
        f"digraph {{ rankdir={direction}; bgcolor=transparent; nodesep=0.16; ranksep=0.45;",
        'node [shape=box style="filled" fontname=Helvetica fontsize=11 fontcolor=white color=transparent'
        ' margin="0.13,0.06"];',
        'edge [color="#8A929B" arrowsize=0.6];',
        *(f'"{name}" [label="{label}" fillcolor="{colour}"];' for name, (label, colour) in boxes.items()),
        *(f'"{source}" -> "{target}";' for source, target in edges),
    ]
    return "\n".join([*lines, "}"])


def reduced(sources: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the graph without edges implied by longer paths.

    >>> reduced({"a": set(), "b": {"a"}, "c": {"a", "b"}})["c"]
    {'b'}
    """

    @cache
    def ancestors(node: str) -> frozenset[str]:
        return frozenset(sources[node]).union(*(ancestors(one) for one in sources[node]))

    return {
        node: {one for one in direct if not any(one in ancestors(other) for other in direct - {one})}
        for node, direct in sources.items()
    }


def state_of(created: str, started: str | None) -> str:
    """Return the state of an artifact in the run that began at `started`; `kept` if no run is recorded."""
    if started is None:
        return "kept"
    return "made" if created >= started else "reused"
