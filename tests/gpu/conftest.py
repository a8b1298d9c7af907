"""What the tests on a GPU share; without one they are skipped."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

import pytest
import torch

from tests.needs import lacks

T = TypeVar("T")


@pytest.fixture(scope="module", autouse=True)
def gpu() -> None:
    if not torch.cuda.is_available():
        lacks("gpu", "no NVIDIA GPU")


def apart(function: Callable[..., T], *given: object) -> T:
    """Call it in a process of its own: vLLM settles once a process whether there are experts."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, *given).result()
