"""The report: one self-contained page and its Markdown version, where every figure has its query and artifacts.

This module computes no figures. Named queries compute them from the rows of the inputs, and `tasks.domain` formats and
draws them. Text that depends on the clock is inside `<time>`. The rest is identical in every run of an experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import orjson

from storage.artifacts.manifest import Group, inputs_by_name
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import Evidence, Problems, Report, Tables
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.reading import figures
from storage.reading.catalog import lineage
from storage.reading.charts import as_png, as_svg, dark_rules, specs_of
from storage.reading.query_cache import report_inputs
from storage.reading.views import Views, helper_tables, inputs_of, views
from storage.sql import named, query
from tasks.report.findings import answer, caveats
from tasks.report.headline import headline
from tasks.report.matrix import VERBS, at_all_values, chart_of, values_of
from tasks.report.tables import printed_table
from tasks.stage import Payload, making, stage, store, workdir


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup(Group):
    """The study as the report describes it.

    - arms: in the order of lists and colours. model: its name.
    - Labels: title, about: the study's name and purpose. changes: differences from its base profile. settings: the
      whole study as a file. prompts: those of each arm. command: the command that runs it. asks: the question, which is
      the page's title. registered: a sentence. earlier_looks: earlier reports on the same question. beside: `VALUE
      REPORT` for each other value of the study's matrix.
    """

    profile: str
    purpose: str
    question: str
    model: str = field(compare=False)
    arms: tuple[str, ...]
    title: str = field(default="", compare=False)
    about: str = field(default="", compare=False)
    changes: tuple[str, ...] = field(default=(), compare=False)
    settings: str = field(default="", compare=False)
    prompts: tuple[str, ...] = field(default=(), compare=False)
    command: str = field(default="", compare=False)
    asks: str = field(default="", compare=False)
    registered: str = field(default="", compare=False)
    earlier_looks: tuple[str, ...] = field(default=(), compare=False)
    beside: tuple[str, ...] = field(default=(), compare=False)


TEMPLATES = Path(__file__).parent / "templates"
#: Variable of the style sheet → style of arms and bands.
STYLES = {f"s{n}": style for n, style in enumerate(figures.ARM_STYLES)} | {
    f"b{n}": style for n, style in enumerate(figures.BAND_STYLES.values())
}


def style_sheet() -> str:
    """Return the style sheet: light or dark as on the reader's system, and light for print."""
    palette = figures.PAGE_STYLES | STYLES
    light, dark = (f":root{{{figures.variables(palette, dark=on)}}}" for on in (False, True))
    by_medium = f"@media(prefers-color-scheme:dark){{{dark}}}\n@media print{{{light}}}"
    return f"{light}\n{by_medium}\n{dark_rules(palette)}\n{(TEMPLATES / 'report.css').read_text()}"


MOST_REFS = 6
#: Characters in a line of a table on a page of 1,280 pixels, alone and next to another figure.
WIDE, NARROW = 128, 58


@stage(Report, version=23)
def render_report(*, setup: Setup, problems: Problems, evidence: Evidence, tables: Tables) -> Payload:
    """Render the report. Rows: one per arm and seed (the query report_summary). Files: report.html and report.md, and
    text and chart of the first screen in answer.json and answer.png."""
    refs, name = inputs_by_name(problems, evidence, tables), setup.title or setup.profile
    with views(inputs_of(store(), refs), helper_tables(refs, setup.arms)) as view:
        summary = view.ask("report_summary").cast(Report.schema)
        sections = [
            {"id": s.id, "title": s.title, "lead": s.lead}
            | {"figures": [_figure(f, view, refs, setup) for f in s.figures]}
            for s in figures.SECTIONS
            if s.id != "answer" and (s.only_with is None or s.only_with in refs)
        ]
        earlier = {final_rollouts_of(Ref.parse(report)) for report in setup.earlier_looks}
        looks = len(earlier | {tuple(refs.get("final", ()))})
        asks = setup.asks or setup.about or setup.question
        first = headline(view.ask, refs, looks, study=name, asks=asks)
        shown = figures.answer_figure(refs, asks)
        drawing = _figure(shown, view, refs, setup, looks, first.withheld)
        own, verb = name.partition("/")[2], VERBS.get((shown.name, "trainings" in refs))
        if (chart := shown.chart) and verb and setup.beside and len(setup.arms) == 2:
            rows = figures.without(view.ask(shown.query), first.withheld)
            values = values_of(shown, own, rows, setup.beside, setup.arms)
            first = at_all_values(first, values, own, chart.y, verb, setup.arms)
            drawing["svg"] = "".join(map(as_svg, specs_of(*chart_of(values, chart, setup.arms), setup.arms)))
        sentences = answer(view.ask, looks)
        warned = caveats(view.ask, setup.registered, looks)
    page = {each.name: getattr(setup, each.name) for each in fields(setup)} | {
        "title": name,
        "profile": name,
        "base": setup.profile,
        "purpose": setup.purpose,
        "command": setup.command or f"varband run {setup.profile}",
        "asks": asks,
        "headline": first,
        "drawing": drawing,
        "tile_names": [*dict.fromkeys(of for tile in first.tiles for of, _ in tile.values)],
        "colours": {arm: f"s{place}" for arm, place in figures.styles(setup.arms).items()},
        "answer": sentences,
        "caveats": warned,
        "sections": sections,
        "pool": str(problems.pool),
        "report": str(making()),
        **_provenance(store(), [Ref.parse(text) for several in refs.values() for text in several]),
    }
    folder = workdir() / "pages"
    folder.mkdir(exist_ok=True)
    (folder / "answer.json").write_bytes(orjson.dumps(first))
    if drawing["svg"]:
        (folder / "answer.png").write_bytes(as_png(str(drawing["svg"])))
    for file in ("report.html", "report.md"):
        (folder / file).write_text(_rendered(f"{file}.j2", page), encoding="utf-8")
    return Payload(summary, files=folder)


def final_rollouts_of(report: Ref) -> tuple[str, ...]:
    """Return the final rollouts of a report, or the report itself if it was deleted. A report of another version with
    the same rollouts is therefore no second look."""
    try:
        return tuple(report_inputs(store().manifest(report).recipe).get("final", ()))
    except (OSError, UserError):
        return (str(report),)


def _figure(
    figure: figures.Figure,
    view: Views,
    refs: dict[str, list[str]],
    setup: Setup,
    looks: int = 1,
    withheld: Sequence[str] = (),
) -> dict[str, object]:
    """Return one figure for the templates. A figure that cannot be shown has the reason in its place. looks: after
    several, the interval of the difference of gains is the one that is valid over all looks. withheld: labels of rows
    of an answer to leave out."""
    sources = [text for name in figure.sources for text in refs.get(name, [])]
    table, drawings, why, caption = None, "", "", figure.caption
    if not refs.get(figure.sources[0]):
        why = figure.without_artifact(figures.chosen_measures(setup.settings))
    else:
        try:
            rows = view.ask(figure.query)
        except UserError as error:  # an artifact of an older version lacks a column
            why = f"Not shown: {error}"
        else:
            if looks > 1 and "sequence_low" in rows.column_names:
                ends = ", ".join(f"coalesce(sequence_{end}, gain_{end}) as gain_{end}" for end in ("low", "high"))
                wider = "coalesce((sequence_high - sequence_low) - (gain_high - gain_low), 0) / 2"
                least = f"detectable_gain + {wider} as detectable_gain"
                rows = query(f"select * replace ({ends}, {least}, null as corrected) from rows", rows=rows)
            rows = figures.without(rows, withheld)
            caption = figure.explained(rows.to_pylist())
            drawings = "".join(map(as_svg, specs_of(figure.chart, rows, setup.arms)))
            table = printed_table(rows.to_pylist(), rows.column_names) if rows.num_rows else None
            if not rows.num_rows:
                why = figure.without_rows
            elif figure.chart and not drawings:
                why = "Nothing to draw: every value is missing."
    return {
        **{name: getattr(figure, name) for name in ("name", "title", "query")},
        "caption": caption,
        "sql": named(figure.query),
        "refs": sources[:MOST_REFS],
        "more": max(0, len(sources) - MOST_REFS),
        "svg": drawings,
        "table": table,
        "parts": table.parts(NARROW if drawings else WIDE) if table else [],
        "why": why,
    }


def _provenance(store: Store, inputs: Sequence[Ref]) -> dict[str, object]:
    """Return everything that the report was made from, each artifact once, with versions and commands."""
    artifacts, commands, versions = [], set(), dict[str, str]()
    for ref in sorted({ref for top in inputs for _, ref, _ in lineage(store, top)}):
        manifest = store.manifest(ref)
        recipe, p = manifest.recipe, manifest.provenance
        spelt = orjson.dumps({"arguments": recipe.arguments, "inputs": recipe.inputs}, option=orjson.OPT_INDENT_2)
        artifacts.append(
            {"ref": str(ref), "stage": recipe.stage, "version": recipe.version, "rows": manifest.rows, "code": p.code}
            | {"created": p.created, "seconds": p.seconds, "recipe": spelt.decode()}
            | {"notes": ", ".join(f"{key} {value}" for key, value in sorted(p.notes.items()))}
        )
        commands.add(p.command)
        versions |= {"hardware": p.hardware, "Python": p.python, **p.packages}
    hardware = versions.pop("hardware", "unknown hardware")
    packages = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return {
        "artifacts": artifacts,
        "commands": "; ".join(sorted(commands)),
        "versions": f"Made on {hardware} with {packages}.",
    }


def _rendered(name: str, page: dict[str, object]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=lambda template: bool(template and ".html" in template),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {"md": _markdown, "dict_of": dict}
    return environment.get_template(name).render(**page, css=style_sheet())


def _markdown(value: object) -> str:
    """Return the text of a cell or sentence, with Markdown's characters escaped."""
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")
    return "".join(f"\\{c}" if c in "|`*_[]\\" else c for c in text)
