"""What the report and the app show, declared once: sections and colours in `figures.toml`, each figure above its query
in `queries/report_<name>.sql`."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.artifacts.kinds import ALWAYS, ASKED_FOR, SOMETIMES
from storage.errors import UserError, did_you_mean
from storage.rules import Band
from storage.sql import QUERIES, header

# Units by a column's name: what is printed in percent, as a difference of shares, as a p-value.

SHARES = (
    "rate",
    "share",
    "accuracy",
    "accuracy_answered",
    "coverage",
    "correct_mean",
    "truncated",
    "no_answer",
    "invalid_tags",
    "live_groups",
    "tag_valid_mean",
)


def is_share(name: str) -> bool:
    """
    >>> is_share("heldout_before"), is_share("other_truncated"), is_share("pass_at_k_low"), is_share("entropy")
    (True, True, True, False)
    """
    base = name.removesuffix("_low").removesuffix("_high").removeprefix("other_")
    return base in SHARES or base.endswith(("_rate", "_share", "_coverage")) or base.startswith(("pass_at", "heldout_"))


def is_gain(name: str) -> bool:
    """A difference of shares, printed in points."""
    base = name.removesuffix("_low").removesuffix("_high")
    return base == "gain" or base.endswith(("_gain", "_pp"))


def is_p_value(name: str) -> bool:
    return name.startswith("p_") or name.endswith("_p")


FILE = Path(__file__).with_name("figures.toml")


@dataclass(frozen=True, slots=True)
class Style:
    """Colours on a light and on a dark page, as #RRGGBB. shape: of an arm's marks, as Vega calls it."""

    light: str
    dark: str
    shape: str = "circle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """kind: how it is drawn, see figures.toml. x, y: columns; x_name, y_name: what the axes are called. each: column of
    which every value has its own chart. label, labels: columns that name a point, or a bar."""

    kind: str
    x: str = ""
    y: str = ""
    x_name: str = ""
    y_name: str = ""
    log_x: bool = False
    each: str | None = None
    label: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """place: in its section, ascending. sources: inputs of the report whose rows it reads; without the first there is
    nothing to show. empty: why there may be no row; empty itself where the artifact alone says so."""

    name: str
    section: str
    place: int
    title: str
    caption: str
    sources: tuple[str, ...]
    chart: Chart | None = None
    empty: str = ""

    @property
    def query(self) -> str:
        return f"report_{self.name}"

    @property
    def file(self) -> str:
        return f"storage/reading/queries/{self.query}.sql"

    @property
    def without_rows(self) -> str:
        return f"Nothing to show: {self.empty or 'the artifact has no row.'}"

    def without_artifact(self, chosen: Collection[str] = ()) -> str:
        """chosen: the measures that the study asked for; none: all."""
        source = self.sources[0]
        asked = not chosen or source in {*ALWAYS, *SOMETIMES, *ASKED_FOR, *chosen}
        why = self.empty if asked else "its study asks for other measures."
        return f"Not in this run, which holds no {source}{f': {why}' if why else '.'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """page: of the app, which shows it. only_with: argument of the report's stage without which a report does not have
    this section."""

    id: str
    title: str
    page: str
    figures: tuple[Figure, ...]
    lead: str = ""
    only_with: str | None = None


def chosen_measures(settings: str) -> tuple[str, ...]:
    """Of a study's settings, as a report has them; none: all.

    >>> chosen_measures('measures = ["tokens"]'), chosen_measures("")
    (('tokens',), ())
    """
    return tuple(tomllib.loads(settings).get("measures", ()))


def _figure(query: str) -> Figure:
    """Errors: TypeError or KeyError, with the query's name, for a header that declares no figure."""
    given = tomllib.loads(header(query))
    try:
        chart = Chart(**given.pop("chart")) if "chart" in given else None
        sources = tuple(given.pop("sources"))
        return Figure(name=query.removeprefix("report_"), sources=sources, chart=chart, **given)
    except (TypeError, KeyError) as error:
        error.add_note(f"in the header of storage/reading/queries/{query}.sql")
        raise


def in_sections(declared: Sequence[Mapping[str, Any]], figures: Iterable[Figure]) -> tuple[Section, ...]:
    """Every figure in its section. Errors: UserError for a figure of a section that is not declared."""
    held: dict[str, list[Figure]] = {given["id"]: [] for given in declared}
    for figure in sorted(figures, key=lambda f: (f.place, f.name)):
        _check(figure, "section", figure.section, held)
        held[figure.section].append(figure)
    return tuple(Section(**given, figures=tuple(held[given["id"]])) for given in declared)


def _check(figure: Figure, what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise UserError(
            f"{figure.file}: unknown {what} '{name}'{did_you_mean(name, known)} (known: {', '.join(known)})"
        )


def check_sources(figures: Iterable[Figure], known: Iterable[str]) -> None:
    """known: everything that a report can hold. Errors: UserError for a figure that reads what no report can hold."""
    names = sorted(known)
    for figure in figures:
        for source in figure.sources:
            _check(figure, "source", source, names)


_DECLARED = tomllib.loads(FILE.read_text(encoding="utf-8"))
SECTIONS = in_sections(_DECLARED["section"], (_figure(path.stem) for path in QUERIES.glob("report_*.sql")))
FIGURES = {figure.name: figure for section in SECTIONS for figure in section.figures}
#: By the variables of style sheets.
PAGE_STYLES = {name: Style(**style) for name, style in _DECLARED["page_style"].items()}
#: In the order of a run's arms.
ARM_STYLES = tuple(Style(**style) for style in _DECLARED["arm_style"])
#: Bands in the order in which everything lists them.
BAND_STYLES = {band: Style(**_DECLARED["band_style"][band]) for band in Band}
BANDS = tuple(map(str, Band))


def variables(styles: Mapping[str, Style], *, dark: bool = False) -> str:
    """Styles as a style sheet declares them.

    >>> variables({"ink": Style("#1C1E21", "#E6E8EB")}, dark=True)
    '--ink:#e6e8eb;'
    """
    return "".join(f"--{name}:{(style.dark if dark else style.light).lower()};" for name, style in styles.items())


def on_page(page: str) -> tuple[Section, ...]:
    """Sections that a page of the app shows, in the order of the report."""
    return tuple(section for section in SECTIONS if section.page == page)


def styles(arms: Iterable[str]) -> dict[str, int]:
    """Arm → place in ARM_STYLES. arms: all of a run's, so that one without rows keeps its colour; more arms than styles
    begin again."""
    return {arm: place % len(ARM_STYLES) for place, arm in enumerate(arms)}
