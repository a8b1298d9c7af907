"""Bands: which problems of each arm give a gradient, and how two arms' bands overlap."""

from __future__ import annotations

from dashboards.pages.parts import show_section
from storage.reading.figures import SECTION


def page() -> None:
    show_section(SECTION["bands"])
