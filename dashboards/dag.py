"""The DAG behind a report, drawn small: like artifacts are one box, and an edge that others imply is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from storage.reading.query_cache import Manifest
from storage.reading.recipes import arm_of

COLOURS = {"made": "#00734f", "reused": "#0072B2", "kept": "#6b747e"}


@dataclass(slots=True)
class Box:
    """Artifacts of one role and arm. states: how many were made, reused or simply kept."""

    title: str
    rows: int = 0
    count: int = 0
    states: dict[str, int] = field(default_factory=dict)
    sources: set[str] = field(default_factory=set)


def arms_of(manifests: Mapping[str, Manifest]) -> dict[str, str]:
    """Artifact → arm: its policy's, else the one that all its inputs share, else empty."""
    found: dict[str, str] = {}

    def arm(ref: str) -> str:
        if ref not in found:
            found[ref] = ""
            own = arm_of(manifests[ref].recipe)
            inputs = {arm(str(r)) for r in manifests[ref].input_refs if str(r) in manifests} - {""}
            found[ref] = own or (inputs.pop() if len(inputs) == 1 else "")
        return found[ref]

    for ref in manifests:
        arm(ref)
    return found


def boxes(report: str, manifests: Mapping[str, Manifest], states: Mapping[str, str]) -> dict[str, Box]:
    """Box by key. A role is the argument under which the report takes an artifact, else the artifact's kind."""
    roles = {ref: name for name, refs in manifests[report].recipe.inputs.items() for ref in refs}
    arms = arms_of(manifests)
    keys = {ref: f"{roles.get(ref, m.kind)} {arms[ref]}".strip() for ref, m in manifests.items()}
    made: dict[str, Box] = {}
    for ref, manifest in manifests.items():
        box = made.setdefault(keys[ref], Box(keys[ref]))
        box.count += 1
        box.rows += manifest.rows
        box.states[states[ref]] = box.states.get(states[ref], 0) + 1
        box.sources |= {keys[str(r)] for r in manifest.input_refs if str(r) in keys} - {keys[ref]}
    return made


def reduced(sources: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Without the edges that a longer way implies.

    >>> reduced({"a": set(), "b": {"a"}, "c": {"a", "b"}})["c"]
    {'b'}
    """
    above: dict[str, set[str]] = {}

    def ancestors(node: str) -> set[str]:
        if node not in above:
            above[node] = set()
            above[node] = set(sources[node]).union(*(ancestors(s) for s in sources[node]))
        return above[node]

    return {
        node: {s for s in direct if not any(s in ancestors(other) for other in direct - {s})}
        for node, direct in sources.items()
    }


def dot(made: Mapping[str, Box]) -> str:
    """In DOT. Labels are roles, arms and numbers: nothing that a model wrote."""
    edges = reduced({key: box.sources for key, box in made.items()})
    lines = [
        'digraph { rankdir=LR; bgcolor=transparent; nodesep=0.16; ranksep=0.45; node [shape=box style="filled"'
        ' fontname=Helvetica fontsize=11 fontcolor=white color=transparent margin="0.13,0.06"];'
        ' edge [color="#8A929B" arrowsize=0.6];'
    ]
    for key, box in made.items():
        state = max(box.states, key=lambda s: box.states[s])
        times = f" ×{box.count}" if box.count > 1 else ""
        lines.append(f'"{key}" [label="{box.title}{times}\\n{box.rows:,} rows" fillcolor="{COLOURS[state]}"];')
        lines += [f'"{source}" -> "{key}";' for source in sorted(edges[key])]
    return "\n".join([*lines, "}"])


def state_of(created: str, started: str | None) -> str:
    """Of an artifact in the run that began at `started`; null: no run is recorded."""
    if started is None:
        return "kept"
    return "made" if created >= started else "reused"


def counted(states: Sequence[str]) -> str:
    words = {"made": "made by this run", "reused": "reused", "kept": "in the store"}
    return " · ".join(f"{n} {words[word]}" for word in words if (n := sum(s == word for s in states)))
