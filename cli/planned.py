"""What `varband plan` says: what each stage will take, the sum, what the study could see, whether a budget holds it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import orjson
from rich.console import Console
from rich.table import Table

from flows.running.costs import Cost, total
from flows.running.foresight import Foresight
from flows.running.plan import Planned


def show_plan(
    called: str,
    planned: Sequence[Planned],
    costs: Sequence[Cost],
    limits: Mapping[str, float],
    sees: Foresight | None = None,
    notes: Sequence[str] = (),
    *,
    as_json: bool = False,
) -> None:
    """called: the study. notes: what else is to be known of it."""
    if as_json:
        sys.stdout.buffer.write(orjson.dumps(_as_json(called, planned, costs, limits, sees, notes)) + b"\n")
        return
    console, whole = Console(highlight=False), total(costs)
    console.print(_table(planned, costs, whole))
    console.print(f"[bold]{called}[/]: {sum(not p.reused for p in planned)} of {len(planned)} stages would be made")
    units = ("rollouts", "rollouts kept", "tokens", "GPU-hours", "US$", "of disk")
    amounts = zip(units, _amounts(whole), strict=True)
    console.print(f"in all {', '.join(f'{text.strip()} {name}' for name, text in amounts)}", soft_wrap=True)
    if whole.basis == "assumed":
        console.print("lengths are assumed (60 % of max_tokens) where this store has not measured an arm yet")
    if sees is not None:
        console.print(sees.sentence())
    for note in filter(None, notes):
        console.print(note, soft_wrap=True)
    for name, limit in limits.items():
        need = getattr(whole, name)
        verdict = "holds" if need <= limit else "[bold red]does not hold[/]: the run would park"
        console.print(f"budget {name}={limit:g} {verdict} (about {need:.3g})")


def _as_json(
    called: str,
    planned: Sequence[Planned],
    costs: Sequence[Cost],
    limits: Mapping[str, float],
    sees: Foresight | None,
    notes: Sequence[str],
) -> dict[str, object]:
    rows = [
        {"title": p.step.title, "ref": str(p.step.ref), "reused": p.reused, **asdict(c)}
        for p, c in zip(planned, costs, strict=True)
    ]
    return {
        "profile": called,
        "stages": rows,
        "total": asdict(total(costs)),
        "budget": dict(limits),
        "sees": None if sees is None else asdict(sees),
        "notes": [note for note in notes if note],
    }


def _table(planned: Sequence[Planned], costs: Sequence[Cost], whole: Cost) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("", "stage", "rollouts", "kept", "tokens", "GPU-h", "US$", "disk"):
        table.add_column(name, justify="left" if name in ("", "stage") else "right", no_wrap=True)
    for p, c in zip(planned, costs, strict=True):
        table.add_row("·" if p.reused else "+", p.step.title, *_amounts(c), style="dim" if p.reused else "")
    table.add_row("", "[bold]total[/]", *_amounts(whole))
    return table


def _amounts(cost: Cost) -> list[str]:
    """Cells of a plan's line; a dash for what it does not need. `kept`: rollouts that are in the ledger already."""
    numbers = (
        (cost.rollouts, f"{cost.rollouts:,}"),
        (cost.rollouts_reused, f"{cost.rollouts_reused:,}"),
        (cost.tokens, _short(cost.tokens)),
        (cost.gpu_hours, f"{cost.gpu_hours:.3g}"),
        (cost.usd, f"{cost.usd:,.2f}"),
        (cost.bytes, f"{_short(cost.bytes)}B"),
    )
    return [text if value else "–" for value, text in numbers]


def _short(value: float) -> str:
    """
    >>> _short(1_359_488), _short(950)
    ('1.36 M', '950 ')
    """
    for unit in ("", "k", "M", "G"):
        if abs(value) < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} T"
