"""Bands, under the name by which what trains knows them; the rule stands in storage.bands, where SQL asks it too."""

from storage.bands import Band, band

__all__ = ["Band", "band"]
