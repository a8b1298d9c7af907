"""Pages of figures alone. Bands: which problems of each arm give a gradient, and how two arms' bands overlap. Results:
before and after, pass@k, diversity and what they cost. Section by section as in the report."""

from __future__ import annotations

import streamlit as st

from dashboards.pages.parts import chosen, root, show_section
from storage.reading.figures import on_page
from storage.reading.query_cache import sources


def bands() -> None:
    for section in on_page("bands"):
        show_section(section)


def page() -> None:
    report = chosen()
    if report is None:
        return
    first, *others = on_page("results")
    show_section(first)
    sections = [
        section for section in others if section.only_with is None or sources(root(), report.ref, (section.only_with,))
    ]
    for tab, section in zip(st.tabs([section.title for section in sections]), sections, strict=True):
        with tab:
            show_section(section)
