"""What a test may lack. A lack skips the test, aloud; where VARBAND_REQUIRE names it (`shared,browser,postgres,gpu`)
the test fails instead. Packages that the lock has are never lacking: without them a test breaks."""

import os
from typing import NoReturn

import pytest


def lacks(what: str, why: str) -> NoReturn:
    if what in os.environ.get("VARBAND_REQUIRE", "").split(","):
        pytest.fail(f"{why} (VARBAND_REQUIRE names {what})")
    pytest.skip(why)
