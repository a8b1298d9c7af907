"""What was tried and how it ended: a file of JSON lines that grows over many runs, and the tables of docs/reliability.md
that are made from it."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
RESULTS = REPO / "docs" / "results" / "faults.jsonl"
RECOVERED = "recovered"
PARTS = 10


@dataclass(frozen=True, slots=True)
class Tried:
    """One fault. moment: as a share of an undisturbed run's seconds; null where work is counted instead. at: the stage
    that it hit. outcome: RECOVERED, or what was wrong. recovery: seconds to the end. overcharged: rollouts that were
    paid for and not kept. load: runnable processes of the machine."""

    kind: str
    seed: int
    outcome: str
    recovery: float
    moment: float | None = None
    at: str = ""
    kept: int = 0
    overcharged: int = 0
    seconds: float = 0.0
    load: float = 0.0
    commit: str = ""


@dataclass(frozen=True, slots=True)
class Calm:
    """An undisturbed run. shares: stage → its share of the seconds."""

    undisturbed: str
    seconds: float
    shares: dict[str, float]


def append(path: Path, line: Tried | Calm) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        handle.write(json.dumps(asdict(line)) + "\n")


def _lines(path: Path) -> Iterator[dict[str, object]]:
    for line in path.read_text().splitlines() if path.exists() else ():
        yield json.loads(line)


def tried(path: Path) -> list[Tried]:
    return [Tried(**line) for line in _lines(path) if "kind" in line]  # type: ignore[arg-type]


def calm(path: Path) -> list[Calm]:
    return [Calm(**line) for line in _lines(path) if "undisturbed" in line]  # type: ignore[arg-type]


def report(path: Path, kinds: Sequence[str]) -> str:
    """Markdown. kinds: in the order of the rows; what is in the file and not among them comes last."""
    by_kind: dict[str, list[Tried]] = {kind: [] for kind in kinds}
    for one in tried(path):
        by_kind.setdefault(one.kind, []).append(one)
    rows = ["| fault | tried | recovered | seconds to recover, median (worst) |", "|---|---|---|---|"]
    for kind, found in by_kind.items():
        seconds = [one.recovery for one in found if one.outcome == RECOVERED]
        took = f"{statistics.median(seconds):.1f} ({max(seconds):.1f})" if seconds else "–"
        rows.append(f"| {kind} | {len(found)} | {len(seconds)} | {took} |")
    everything = [one for found in by_kind.values() for one in found]
    words = {word: sum(one.outcome.startswith(word) for one in everything) for word in ("lost", "doubled", "differs")}
    over = [one.overcharged for one in everything]
    total = (
        f"{len(everything)} faults, {sum(one.outcome == RECOVERED for one in everything)} recovered; lost"
        f" {words['lost']}, doubled {words['doubled']}, otherwise than undisturbed {words['differs']}. Rollouts charged"
        f" and not kept: {sum(over)} over all, at most {max([0, *over])} of one fault."
    )
    failed = [
        _failed(found, i) for found in by_kind.values() for i, one in enumerate(found) if one.outcome != RECOVERED
    ]
    return "\n".join([*rows, "", total, *failed, "", *_moments(path, everything)])


def _failed(kind: Sequence[Tried], i: int) -> str:
    """kind: all of one kind, oldest first. What was wrong, and how the same went at later commits."""
    one = kind[i]
    since = [later.outcome == RECOVERED for later in kind[i + 1 :] if later.commit != one.commit]
    told = f"of {len(since)} tried at later commits {sum(since)} recovered"
    return f"- {one.kind}, seed {one.seed}, in {one.at or '?'} at {one.commit or '?'}: {one.outcome}; {told}"


def _moments(path: Path, everything: Sequence[Tried]) -> Iterator[str]:
    """What was hit, beside how long it takes: as many as it should be if moments are uniform."""
    drawn = [one for one in everything if one.moment is not None and one.at]
    shares: dict[str, list[float]] = defaultdict(list)
    runs = [one for one in calm(path) if one.undisturbed == "plain"]
    for run in runs:
        for stage, share in run.shares.items():
            shares[stage].append(share)
    if not drawn or not shares:
        return
    yield f"| stage | share of an undisturbed run | of {len(drawn)} faults |\n|---|---|---|"
    for stage, found in shares.items():
        hit = sum(one.at == stage for one in drawn)
        yield f"| {stage} | {100 * sum(found) / len(runs):.0f} % | {hit} ({100 * hit / len(drawn):.0f} %) |"
    tenths = [0] * PARTS
    for one in drawn:
        tenths[min(PARTS - 1, int((one.moment or 0) * PARTS))] += 1
    yield f"\nMoments by tenths of the run: {', '.join(map(str, tenths))}."
