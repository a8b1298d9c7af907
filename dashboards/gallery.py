"""The gallery: a static page of problems with rollouts side by side. The text of rollouts is escaped and truncated, and
never executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import orjson

from dashboards.text import MOST, Piece, mathml, pieces
from storage.errors import UserError
from storage.reading.figures import PAGE_STYLES, variables
from storage.reading.query_cache import ask, reports

TEMPLATES = Path(__file__).parent / "templates"
DEFAULT_PROBLEMS = 12
UNFILTERED: dict[str, object] = {"source": None, "arm": None, "band": None, "verdict": None, "search": None}


@dataclass(frozen=True, slots=True)
class Sample:
    """One parsed rollout and its grade. verdict: None if it was not graded."""

    policy: str
    verdict: str | None
    facts: str
    answer: str | None
    text: list[Piece]
    note: str


@dataclass(frozen=True, slots=True)
class Item:
    title: str
    problem: list[Piece]
    facts: list[tuple[str, list[Piece]]]
    rollouts: list[Sample]


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    source: str
    facts: list[tuple[str, str]]
    items: list[Item]


def from_report(root: Path, report: str, problems: Sequence[str], kind: str, each: int) -> Page:
    """Return chosen problems of one run. Raise UserError if a problem is unknown or its id is ambiguous."""
    known = ask(root, report, "app_problems", UNFILTERED | {"set": kind}).to_pylist()
    chosen = known[:DEFAULT_PROBLEMS] if not problems else []
    for text in problems:
        matching = [row for row in known if row["problem_id"].startswith(text)]
        if len(matching) != 1:
            raise UserError(
                f"problem '{text[:40]}' fits {len(matching)} problems of this run; the Traces page lists them"
            )
        chosen += matching
    if not chosen:
        raise UserError(f"{report}: its {kind} have no rollouts")
    items = []
    for row in chosen:
        [about] = ask(root, report, "app_problem", {"problem": row["problem_id"]}).to_pylist()
        rows = ask(root, report, "app_rollouts", {"set": kind, "problem": row["problem_id"], "most": MOST}).to_pylist()
        samples = []
        for (arm, step), some in groupby(rows, key=lambda r: (r["arm"], r["step"])):
            policy = f"{arm}, step {step}" if step else f"{arm}, start"
            for r in islice(some, each):
                cut = " · cut off" if r["finish"] == "length" else ""
                facts = f"#{r['rollout']} · {r['num_tokens']:,} tokens{cut}"
                note = _shortened(r["chars"])
                samples.append(Sample(policy, r["verdict"], facts, r["answer"], pieces(r["completion"]), note))
        facts = [("gold", [Piece("math", about["gold"])]), ("correct", [Piece("text", row["correct"])])]
        items.append(Item(f"{row['source']} · {row['problem_id']}", pieces(about["problem"]), facts, samples))
    profile = next((known.profile for known in reports(root) if known.ref == report), "")
    return Page(f"Rollouts of {profile}", report, [("profile", profile), ("rollouts", kind)], items)


def _shortened(chars: int) -> str:
    return f"The first {MOST:,} of {chars:,} characters." if chars > MOST else ""


def from_transcripts(path: Path, problems: Sequence[str]) -> Page:
    """Return a published case study: JSON with `items`, each with a problem and one raw text per arm. Raise UserError
    naming the file and the invalid field."""
    try:
        data = orjson.loads(path.read_bytes())
        items = data["items"]
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise UserError(f"{path}: not a transcripts file (JSON with a list `items`)") from None
    if unknown := set(problems) - {str(item.get("id")) for item in items}:
        raise UserError(f"{path}: there is no item {', '.join(sorted(unknown))}")
    chosen = [item for item in items if not problems or str(item.get("id")) in problems]
    about = data.get("metadata", {})
    facts = [(name.replace("_", " "), str(v)) for name, v in about.items() if isinstance(v, str | int | float)]
    again = {one: part for part in about.get("resamples", []) for one in part["ids"]}
    samples = [_transcript(path, i, item, again.get(item.get("id"))) for i, item in enumerate(chosen)]
    return Page("Case study", path.name, facts, samples)


def _transcript(path: Path, place: int, item: dict[str, Any], again: dict[str, Any] | None) -> Item:
    """Return one item of a transcripts file. again: the note of an item whose texts were sampled later."""
    if not isinstance(item.get("problem"), str):
        raise UserError(f"{path}: items[{place}].problem is missing")
    samples = []
    for arm, given in item.items():
        if not isinstance(given, dict) or "raw" not in given:
            continue
        raw = str(given["raw"])
        samples.append(Sample(arm, None, f"{len(raw):,} characters", None, pieces(raw[:MOST]), _shortened(len(raw))))
    facts = [(name, pieces(str(item[name]))) for name in ("tests", "expected") if item.get(name)]
    if again:
        facts.append(("sampled again", pieces(f"{again['reason']} (max_tokens {again['max_tokens']:,})")))
    return Item(f"{item.get('id', place)} · {item.get('category', '')}", pieces(item["problem"]), facts, samples)


def write(page: Page, target: Path) -> Path:
    """Write one self-contained file. Raise UserError if the page cannot be written."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    light, dark = (variables(PAGE_STYLES, dark=on) for on in (False, True))
    environment.filters["mathml"] = mathml
    text = environment.get_template("gallery.html.j2").render(page=page, light=light, dark=dark)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror})") from None
    return target
