"""The figures of report and app. Sections are declared in `sections.toml`, colours in `colours.toml`, and each figure
in the header of its query `queries/report_<name>.sql`."""

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from storage.artifacts.schemas import ALWAYS, ON_REQUEST, SOMETIMES
from storage.errors import check_known
from storage.estimates import Band
from storage.sql import QUERIES, header

# ---- the unit of a column, given by its name: percent, difference of shares, or p-value

SHARES = {"rate", "share", "accuracy", "accuracy_answered", "coverage", "correct_mean", "truncated", "no_answer"}
SHARES |= {"invalid_tags", "live_groups", "tag_valid_mean"}


def is_share(name: str) -> bool:
    """Return whether a column is printed in percent.

    >>> is_share("heldout_before"), is_share("other_truncated"), is_share("pass_at_k_low"), is_share("entropy")
    (True, True, True, False)
    """
    base = name.removesuffix("_low").removesuffix("_high").removeprefix("other_")
    return base in SHARES or base.endswith(("_rate", "_share", "_coverage")) or base.startswith(("pass_at", "heldout_"))


def is_gain(name: str) -> bool:
    """Return whether a column is a difference of shares, which is printed in percentage points."""
    base = name.removesuffix("_low").removesuffix("_high")
    return base == "gain" or base.endswith(("_gain", "_pp"))


def is_p_value(name: str) -> bool:
    return name.startswith("p_") or name.endswith("_p")


def signed_end(value: float, digits: int = 1) -> str:
    """Return one end of an interval, with more digits if it is close to 0, so that its side of 0 shows.

    >>> signed_end(3.45), signed_end(0.036), signed_end(-0.004), signed_end(0.0), signed_end(0.0851, 3)
    ('+3.5', '+0.04', '−0.004', '0.0', '+0.085')
    """
    shown = next((some for some in range(digits, digits + 3) if round(value, some)), None)
    return f"{0.0:.{digits}f}" if shown is None else f"{value:+.{shown}f}".replace("-", "−")


def _declared(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Style:
    """Colours on a light and on a dark page, as #RRGGBB. shape: Vega's name for the marks of an arm."""

    light: str
    dark: str
    shape: str = "circle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The chart of a figure. kind: see sections.toml. x, y: columns; x_name, y_name: their axis titles. each: column
    with one chart per value. label, labels: columns with the name of a point, or of a bar. digits: of the differences
    in the chart of an answer."""

    kind: str
    x: str = ""
    y: str = ""
    x_name: str = ""
    y_name: str = ""
    log_x: bool = False
    each: str | None = None
    label: str = ""
    labels: tuple[str, ...] = ()
    digits: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure.

    - place: its position in the section.
    - sources: inputs of the report that it reads. A figure is shown only if the report has its first source.
    - empty: why it may have no rows; empty if the missing artifact explains that.
    - legend: for the chart of an answer, a sentence on each kind of mark (see `explained`).
    """

    name: str
    section: str
    place: int
    title: str
    caption: str
    sources: tuple[str, ...]
    chart: Chart | None = None
    empty: str = ""
    legend: Mapping[str, str] = field(default_factory=dict)

    @property
    def query(self) -> str:
        return f"report_{self.name}"

    def explained(self, rows: Sequence[Mapping[str, Any]]) -> str:
        """Return the caption, with sentences on the marks that these rows draw. The key of a mark is the column that it
        shows, the kind of its row (`seed`, `difference`), or one of these: `trained` and `untrained` for the value
        after, `hollow` for a value before that differs from it, `gains` and `rates` for differences with and without
        training."""
        drawn = {name for row in rows for name, value in row.items() if value is not None}
        drawn |= {str(row.get("row")) for row in rows}
        x = self.chart.x if self.chart else ""
        ends = [(row.get(x.replace("after_", "before_")), row.get(x)) for row in rows if row.get("row") == "level"]
        trained = any(before is not None for before, _ in ends)
        drawn.add("trained" if trained else "untrained")
        if any(before is not None and before != after for before, after in ends):
            drawn.add("hollow")
        if "difference" in drawn:
            drawn.add("gains" if trained else "rates")
        return " ".join(filter(None, [*(words for mark, words in self.legend.items() if mark in drawn), self.caption]))

    @property
    def without_rows(self) -> str:
        return f"Nothing to show: {self.empty or 'the artifact has no row.'}"

    def without_artifact(self, chosen: Collection[str] = ()) -> str:
        """Return the text for a missing artifact. chosen: the measures that the study selected; empty means all."""
        source = self.sources[0]
        selected = not chosen or source in {*ALWAYS, *SOMETIMES, *ON_REQUEST, *chosen}
        why = self.empty if selected else "its study selects other measures."
        return f"Not in this run, which holds no {source}{f': {why}' if why else '.'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section. page: page of the app. only_with: the section is in a report only if the report has this input."""

    id: str
    title: str
    page: str
    figures: tuple[Figure, ...]
    lead: str = ""
    only_with: str | None = None


def chosen_measures(settings: str) -> tuple[str, ...]:
    """Return the measures in a study's settings, as its report stores them; empty means all.

    >>> chosen_measures('measures = ["tokens"]'), chosen_measures("")
    (('tokens',), ())
    """
    return tuple(tomllib.loads(settings).get("measures", ()))


def _figure(query: str) -> Figure:
    """Read a figure from the header of its query. Raise TypeError or KeyError for an invalid header."""
    given = tomllib.loads(header(query))
    try:
        chart = Chart(**given.pop("chart")) if "chart" in given else None
        sources = tuple(given.pop("sources"))
        return Figure(name=query.removeprefix("report_"), sources=sources, chart=chart, **given)
    except (TypeError, KeyError) as error:
        error.add_note(f"in the header of storage/reading/queries/{query}.sql")
        raise


def in_sections(declared: Sequence[Mapping[str, Any]], figures: Iterable[Figure]) -> tuple[Section, ...]:
    """Return the sections with their figures. Raise KeyError if the section of a figure is unknown."""
    held: dict[str, list[Figure]] = {given["id"]: [] for given in declared}
    for figure in sorted(figures, key=lambda f: (f.place, f.name)):
        held[figure.section].append(figure)
    return tuple(Section(**given, figures=tuple(held[given["id"]])) for given in declared)


_SECTIONS, _COLOURS = _declared("sections.toml")["section"], _declared("colours.toml")
SECTIONS = in_sections(_SECTIONS, (_figure(path.stem) for path in QUERIES.glob("report_*.sql")))
FIGURES = {figure.name: figure for section in SECTIONS for figure in section.figures}
#: Styles by the variables of style sheets.
PAGE_STYLES = {name: Style(**style) for name, style in _COLOURS["page_style"].items()}
#: Styles in the order of a run's arms.
ARM_STYLES = tuple(Style(**style) for style in _COLOURS["arm_style"])
#: Styles of bands, in display order.
BAND_STYLES = {band: Style(**_COLOURS["band_style"][band]) for band in Band}
BANDS = tuple(map(str, Band))


def variables(styles: Mapping[str, Style], *, dark: bool = False) -> str:
    """Return styles as variables of a style sheet.

    >>> variables({"ink": Style("#1C1E21", "#E6E8EB")}, dark=True)
    '--ink:#e6e8eb;'
    """
    return "".join(f"--{name}:{(style.dark if dark else style.light).lower()};" for name, style in styles.items())


#: Words that show that a question asks about width.
OF_WIDTH = re.compile(r"\b(wide|wider|width|diverse|diversity)\b", re.IGNORECASE)


def answer_figure(inputs: Collection[str], asks: str) -> Figure:
    """Return the figure that answers a study's question. inputs: names of the report's inputs. asks: the question. A
    question about width is answered by the correct ways that objectives find, or, if nothing was trained, by the
    measures of width."""
    width, objectives = OF_WIDTH.search(asks), "objectives" in inputs
    kinds = {"ways": objectives and width, "objectives": objectives, "search": "search_curves" in inputs}
    kinds["width"] = width and "diversities" in inputs and "trainings" not in inputs
    return FIGURES[f"answer_{next((kind for kind, asked in kinds.items() if asked), 'gain')}"]


def without(rows: pa.Table, withheld: Sequence[str]) -> pa.Table:
    """Return the rows of an answer without the rows with these labels."""
    return rows.filter(~pc.field("label").isin(list(withheld))) if withheld else rows


def on_page(page: str) -> tuple[Section, ...]:
    """Return the sections on a page of the app, in the order of the report."""
    return tuple(section for section in SECTIONS if section.page == page)


def styles(arms: Iterable[str]) -> dict[str, int]:
    """Return arm → index in ARM_STYLES, which starts again if too short. arms: all of the run, so that colours stay."""
    return {arm: place % len(ARM_STYLES) for place, arm in enumerate(arms)}


def figure_named(name: str) -> Figure:
    """Return a figure by its name or by the name of its query. Raise UserError if there is no such figure."""
    check_known("figure or table", short := name.removeprefix("report_"), FIGURES)
    return FIGURES[short]
