"""What a test may lack. A lack skips the test, aloud; where VARBAND_REQUIRE names it (`shared,browser,postgres,gpu`)
the test fails instead. Packages that the lock has are never lacking: without them a test breaks."""

from __future__ import annotations

import os
import platform
import sys
from typing import NoReturn

import pytest

#: As pyproject.toml has it: on this platform an absent vLLM is a broken install, elsewhere it cannot be had.
vllm = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="vLLM for the CPU is for Linux on x86-64"
)


def lacks(what: str, why: str) -> NoReturn:
    if what in os.environ.get("VARBAND_REQUIRE", "").split(","):
        pytest.fail(f"{why} (VARBAND_REQUIRE names {what})")
    pytest.skip(why)
