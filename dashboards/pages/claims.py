"""Claims and audit: what the run's design makes of its numbers, and whether printed figures still hold."""

from __future__ import annotations

from dashboards.pages.parts import figure


def page() -> None:
    figure("Findings about the design", "report_audit", ("audit",), empty="No finding: every design check passed.")
