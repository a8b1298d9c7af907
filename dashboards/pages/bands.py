"""Bands: which problems of each arm give a gradient, and how two arms' bands overlap."""

from __future__ import annotations

from dashboards.pages.parts import show_section
from storage.reading.figures import on_page


def page() -> None:
    for section in on_page("bands"):
        show_section(section)
