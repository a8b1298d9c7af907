"""The team's window on a store. `varband serve` runs it; it reads artifacts and ledger and changes nothing."""

from __future__ import annotations

import streamlit as st

from dashboards.pages import claims, compare, overview, results, search, traces, training
from dashboards.pages.parts import root
from storage.reading.query_cache import reports

PAGES = {
    "overview": ("Overview", overview.page),
    "bands": ("Bands", results.bands),
    "training": ("Training", training.page),
    "results": ("Results", results.page),
    "search": ("Search", search.page),
    "traces": ("Traces", traces.page),
    "claims": ("Claims and audit", claims.page),
    "compare": ("Compare", compare.page),
}
#: Captions as dark as the text; a graph scrolls within the page; a phone keeps its width for what is shown.
STYLE = """<style>.stMainBlockContainer{padding:3.2rem 2.5rem 4rem}
[data-testid="stCaptionContainer"]{color:inherit;opacity:.86}[data-testid="stCaptionContainer"] p{color:inherit}
blockquote{opacity:1!important}
[data-testid="stGraphVizChart"]{overflow-x:auto;max-width:100%}[data-testid="stGraphVizChart"] svg{max-width:none}
@media(max-width:640px){.stMainBlockContainer{padding:3rem .9rem 3rem}h1{font-size:1.9rem!important}}</style>"""


def choose_run() -> None:
    """The run that every page looks at: kept in the session and in the address."""
    found = {report.ref: report for report in reports(root())}
    if not found:
        return
    asked = st.query_params.get("run")
    if asked and asked not in found:
        st.sidebar.warning(f"No run `{asked[:60]}` in this store; showing the newest.")
    if "run" not in st.session_state or st.session_state["run"] not in found:
        st.session_state["run"] = asked if asked in found else next(iter(found))
    st.sidebar.selectbox("Run", list(found), format_func=lambda ref: found[ref].label, key="run")
    st.query_params["run"] = st.session_state["run"]


def main() -> None:
    st.set_page_config(page_title="Varband", layout="wide")
    pages = [
        st.Page(page, title=title, url_path=name, default=name == "overview") for name, (title, page) in PAGES.items()
    ]
    here = st.navigation(pages)
    st.html(STYLE)
    st.sidebar.caption(f"store `{root()}`")
    choose_run()
    st.title(here.title)
    here.run()
