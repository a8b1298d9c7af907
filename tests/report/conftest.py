"""The made-up study and the browser of tests/dashboards: report and app show the same rows."""

from tests.dashboards.conftest import browser, study

__all__ = ["browser", "study"]
