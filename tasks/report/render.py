"""The report: one self-contained page and its Markdown twin, every figure bound to a query and to artifacts.

Nothing is computed here: named queries over the inputs' rows give the figures, `tasks.domain` spells and draws them.
What depends on the clock stands in `<time>`, so that the rest is the same text in every run of the same experiment.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.reading.catalog import lineage
from storage.reading.figures import SECTIONS, Figure, styles
from storage.reading.views import Views, helper_tables, inputs_of, views
from storage.sql import named
from tasks.report.drawings import draw
from tasks.report.findings import answer, caveats
from tasks.report.style import TEMPLATES, style_sheet
from tasks.report.tables import shown
from tasks.stage import Payload, making, stage, store, workdir

REFS_SHOWN = 6


@stage("report", version=5)
def render_report(
    profile: str,
    purpose: str,
    question: str,
    model: str,
    arms: tuple[str, ...],
    pool: Ref,
    splits: Ref,
    screenings: tuple[Ref, ...],
    bands: tuple[Ref, ...],
    crosstab: Ref,
    trainings: tuple[Ref, ...],
    evaluations: tuple[Ref, ...],
    curves: Ref,
    diversities: tuple[Ref, ...],
    diversity: Ref,
    passk: Ref,
    tokens: Ref,
    hard: Ref,
    final: tuple[Ref, ...],
    audit: Ref,
    contrasts: Ref | None = None,
    answers: tuple[Ref, ...] = (),
    votes: Ref | None = None,
    ceilings: Ref | None = None,
    asymptotes: Ref | None = None,
    benchmarks: tuple[Ref, ...] = (),
    sliced: tuple[Ref, ...] = (),
    slices: tuple[Ref, ...] = (),
    slice_contrasts: tuple[Ref, ...] = (),
) -> Payload:
    """Rows: one per arm and seed (storage/reading/queries/report_summary.sql). Files: report.html, report.md.

    evaluations: held-out rollouts of the curve; final: of the base and of the last adapter, with more rollouts each.
    benchmarks: what each asks; sliced: all rollouts on them; slices, slice_contrasts: pass@k, one artifact a benchmark.
    """
    inputs = {
        "pool": [pool],
        "splits": [splits],
        "screenings": screenings,
        "bands": bands,
        "crosstab": [crosstab],
        "trainings": trainings,
        "evaluations": evaluations,
        "curves": [curves],
        "diversities": diversities,
        "diversity": [diversity],
        "passk": [passk],
        "tokens": [tokens],
        "hard": [hard],
        "final": final,
        "audit": [audit],
        "answers": answers,
        "benchmarks": benchmarks,
        "sliced": sliced,
        "slices": slices,
        "slice_contrasts": slice_contrasts,
        **{
            name: [ref] if ref else []
            for name, ref in (
                ("contrasts", contrasts),
                ("votes", votes),
                ("ceilings", ceilings),
                ("asymptotes", asymptotes),
            )
        },
    }
    named_refs = {name: [str(ref) for ref in refs] for name, refs in inputs.items() if refs}
    with views(inputs_of(store(), named_refs), helper_tables(named_refs, arms)) as asked:
        summary = asked.ask("report_summary")
        sections = [
            {
                "id": s.id,
                "title": s.title,
                "lead": s.lead,
                "figures": [_figure(f, asked, named_refs, arms) for f in s.figures],
            }
            for s in SECTIONS
            if s.only_with is None or s.only_with in named_refs
        ]
        said, warned = answer(asked.ask), caveats(asked.ask)
    page = {
        "title": profile,
        "profile": profile,
        "question": question,
        "purpose": purpose,
        "model": model,
        "answer": said,
        "caveats": warned,
        "sections": sections,
        "pool": str(pool),
        "report": str(making()),
        **_provenance(store(), [Ref.parse(text) for refs in named_refs.values() for text in refs]),
    }
    folder = workdir() / "pages"
    folder.mkdir(exist_ok=True)
    for name in ("report.html", "report.md"):
        (folder / name).write_text(_rendered(f"{name}.j2", page), encoding="utf-8")
    return Payload(summary, files=folder)


def _figure(figure: Figure, asked: Views, refs: dict[str, list[str]], arms: Sequence[str]) -> dict[str, object]:
    """One figure as the templates need it; a query that an older artifact cannot answer says so in its place."""
    sources = [text for name in figure.sources for text in refs.get(name, [])]
    made: dict[str, object] = {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "query": figure.query,
        "sql": named(figure.query),
        "refs": sources[:REFS_SHOWN],
        "more": max(0, len(sources) - REFS_SHOWN),
        "svg": None,
        "table": None,
        "why": "",
    }
    try:
        table = asked.ask(figure.query)
    except UserError as error:
        return made | {"why": f"Not shown: {error}"}
    rows = table.to_pylist()
    if not rows:
        return made | {"why": f"Nothing to show: {figure.empty}"}
    drawn = draw(figure.chart, rows, styles(arms))
    why = "" if drawn or not figure.chart else "Nothing to draw: every value is missing."
    return made | {"svg": drawn, "table": shown(rows, table.column_names), "why": why}


def _provenance(store: Store, inputs: Sequence[Ref]) -> dict[str, object]:
    """Everything that the report descends from, each artifact once; versions and commands."""
    seen: dict[Ref, str] = {}
    for top in inputs:
        for _, ref, _ in lineage(store, top):
            seen.setdefault(ref, "")
    artifacts, commands, versions = [], {}, {}
    for ref in sorted(seen):
        manifest = store.manifest(ref)
        p = manifest.provenance
        notes = ", ".join(f"{key} {value}" for key, value in sorted(p.notes.items()))
        recipe = orjson.dumps(
            {"arguments": manifest.recipe.arguments, "inputs": manifest.recipe.inputs}, option=orjson.OPT_INDENT_2
        )
        artifacts.append(
            {
                "ref": str(ref),
                "stage": manifest.recipe.stage,
                "version": manifest.recipe.version,
                "rows": manifest.rows,
                "code": p.code,
                "created": p.created,
                "seconds": p.seconds,
                "notes": notes,
                "recipe": recipe.decode(),
            }
        )
        commands[p.command] = None
        versions |= {"hardware": p.hardware, "Python": p.python, **p.packages}
    spelt = ", ".join(f"{name} {value}" for name, value in sorted(versions.items()) if name != "hardware")
    return {
        "artifacts": artifacts,
        "commands": "; ".join(sorted(commands)),
        "versions": f"Made on {versions.get('hardware', 'unknown hardware')} with {spelt}.",
    }


def _rendered(name: str, page: dict[str, object]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=lambda template: bool(template and ".html" in template),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["md"] = _markdown
    return environment.get_template(name).render(**page, css=style_sheet())


def _markdown(value: object) -> str:
    """Text of a cell or a sentence that cannot turn into mark-up."""
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")
    return "".join(f"\\{c}" if c in "|`*_[]\\" else c for c in text)
