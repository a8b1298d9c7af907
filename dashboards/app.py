"""The team's view of a store, which `varband serve` starts. The app reads artifacts and ledger, and changes nothing."""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa
import streamlit as st

from dashboards import rollouts, runs
from dashboards.parts import chosen, root, show, show_section
from dashboards.text import literal
from storage.reading.figures import FIGURES, on_page
from storage.reading.query_cache import reports, sources

#: If there are more findings, they are folded by code.
UNFOLDED = 8
#: Captions as dark as the text, and narrow margins on a phone.
STYLE = """<style>.stMainBlockContainer{padding:3.2rem 2.5rem 4rem}
[data-testid="stCaptionContainer"]{color:inherit;opacity:.86}[data-testid="stCaptionContainer"] p{color:inherit}
blockquote{opacity:1!important}
@media(max-width:640px){.stMainBlockContainer{padding:3rem .9rem 3rem}h1{font-size:1.9rem!important}}</style>"""


def bands() -> None:
    """Show which problems of each arm give a gradient, and how far the bands of two arms agree."""
    for section in on_page("bands"):
        show_section(section)


def results() -> None:
    """Show the sections of the report (accuracy, pass@k, diversity, cost), each in a tab."""
    report = chosen()
    if report is None:
        return
    first, *others = on_page("results")
    show_section(first)
    there = [one for one in others if one.only_with is None or sources(root(), report.ref, (one.only_with,))]
    for tab, section in zip(st.tabs([section.title for section in there]), there, strict=True):
        with tab:
            show_section(section)


def audit() -> None:
    """Show the audit's findings on the study's design."""
    show(FIGURES["audit"], write=_findings)


def _findings(rows: pa.Table) -> None:
    """Show findings as sentences, because a table would shorten them."""
    found = sorted(rows.to_pylist(), key=lambda row: row["code"])
    for code, group in groupby(found, key=lambda row: row["code"]):
        some = list(group)
        first = literal(some[0]["fact"][:100]) + (f" and {len(some) - 1} more" if len(some) > 1 else "")
        folded = len(found) > UNFOLDED
        with st.expander(f"**{literal(code)}** {first}") if folded else st.container(border=True):
            for row in some:
                st.markdown(f":orange-badge[{literal(code)}] {literal(row['fact'])}")
                st.caption(f"{literal(row['inference'])}  \n{literal(row['place'])} · query `{row['query']}`")


PAGES = {
    "overview": ("Overview", runs.overview),
    "bands": ("Bands", bands),
    "training": ("Training", runs.training),
    "results": ("Results", results),
    "search": ("Search", rollouts.search),
    "traces": ("Traces", rollouts.traces),
    "audit": ("Audit", audit),
}


def choose_run() -> None:
    """Let the reader choose the run for all pages. The session and the URL keep the choice."""
    found = {report.ref: report for report in reports(root())}
    if not found:
        return
    wanted = st.query_params.get("run")
    if wanted and wanted not in found:
        st.sidebar.warning(f"No run `{wanted[:60]}` in this store; showing the newest.")
    if st.session_state.get("run") not in found:
        st.session_state["run"] = wanted if wanted in found else next(iter(found))
    st.sidebar.selectbox("Run", list(found), format_func=lambda ref: found[ref].label, key="run")
    st.query_params["run"] = st.session_state["run"]


def main() -> None:
    st.set_page_config(page_title="Varband", layout="wide")
    here = st.navigation(
        [st.Page(page, title=title, url_path=name, default=name == "overview") for name, (title, page) in PAGES.items()]
    )
    st.html(STYLE)
    st.sidebar.caption(f"store `{root()}`")
    choose_run()
    st.title(here.title)
    here.run()


if __name__ == "__main__":
    main()
