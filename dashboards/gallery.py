"""The gallery: a static page of problems with rollouts side by side. Texts are escaped, shortened and never run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from dashboards.text import MOST, Piece, mathml, pieces
from storage.errors import UserError
from storage.reading.figures import PAGE_STYLES, variables
from storage.reading.query_cache import ask, reports

TEMPLATES = Path(__file__).parent / "templates"
DEFAULT_PROBLEMS = 12
UNFILTERED: dict[str, object] = {"source": None, "arm": None, "band": None, "verdict": None, "search": None}


@dataclass(frozen=True, slots=True)
class Item:
    """One problem. facts: by name. rollouts: rows of the query app_rollouts, with `policy` and the pieces `text`."""

    title: str
    problem: list[Piece]
    facts: dict[str, list[Piece]]
    rollouts: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    source: str
    facts: dict[str, str]
    items: list[Item]


def from_report(root: Path, report: str, problems: Sequence[str], kind: str, each: int) -> Page:
    """Return these problems of one run. Raise UserError if a problem is unknown or its id is ambiguous."""
    known = ask(root, report, "app_problems", UNFILTERED | {"set": kind}).to_pylist()
    chosen = known[:DEFAULT_PROBLEMS] if not problems else []
    for text in problems:
        matching = [row for row in known if row["problem_id"].startswith(text)]
        if len(matching) != 1:
            raise UserError(
                f"problem '{text[:40]}' matches {len(matching)} problems of this run; the Traces page lists their ids"
            )
        chosen += matching
    if not chosen:
        raise UserError(f"{report}: there are no rollouts of its {kind} to show")
    items = []
    for row in chosen:
        [about] = ask(root, report, "app_problem", {"problem": row["problem_id"]}).to_pylist()
        rows = ask(root, report, "app_rollouts", {"set": kind, "problem": row["problem_id"], "most": MOST}).to_pylist()
        rollouts = []
        for (arm, step), some in groupby(rows, key=lambda r: (r["arm"], r["step"])):
            policy = f"{arm}, step {step}" if step else f"{arm}, start"
            rollouts += [r | {"policy": policy, "text": pieces(r["completion"])} for r in list(some)[:each]]
        facts = {"gold": [Piece("math", about["gold"])], "correct": [Piece("text", row["correct"])]}
        items.append(Item(f"{row['source']} · {row['problem_id']}", pieces(about["problem"]), facts, rollouts))
    profile = next((one.profile for one in reports(root) if one.ref == report), "")
    return Page(f"Rollouts of {profile}", report, {"profile": profile, "rollouts": kind}, items)


def write(page: Page, target: Path) -> Path:
    """Write one self-contained file. Raise UserError if the file cannot be written."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    light, dark = (variables(PAGE_STYLES, dark=on) for on in (False, True))
    environment.filters["mathml"] = mathml
    text = environment.get_template("gallery.html.j2").render(page=page, most=MOST, light=light, dark=dark)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror})") from None
    return target
