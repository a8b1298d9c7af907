"""The package that users import, and the only top-level name of an installation. After `import varband`, the packages
`tasks`, `storage` and so on can be imported.

In a wheel these packages are in a folder of `varband`, outside the import path. In a checkout they are next to
`varband` (docs/decisions/0011-one-name-in-an-environment.md).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.reading.opened import OpenStore
    from tasks.domain.grading.comparison import Verdict

_HERE = Path(__file__).resolve().parent
ROOMS = _HERE / "rooms" if (_HERE / "rooms").is_dir() else _HERE.parent

if str(ROOMS) not in sys.path:
    sys.path.insert(0, str(ROOMS))

if sys.platform == "linux":
    # Arrow reads these variables when it is imported. After reading a million rows in parts, its own allocator keeps
    # 50 MB of freed memory, and jemalloc with several arenas 20 MB.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0")


def grade(answer: str, gold: str) -> Verdict:
    """Grade the text of one answer against a gold (docs/grader.md).

    answer: a final answer, boxed or in a sentence. Text inside tags is ignored. From a completion with `<answer>` tags,
    pass only the text between them, or use `varband grade file`.
    """
    from tasks.engines.grading.graders import grade

    return grade(answer, gold)


def open_store(root: str | Path = ".varband") -> OpenStore:
    """Open a root for reading, in a notebook or a script (docs/guide/connect.md)."""
    from storage.reading.opened import open_store

    return open_store(root)


def main() -> None:
    """Run the `varband` command."""
    from cli.main import main

    main()


def enter() -> dict[str, str]:
    """Return the pull step of every deployment. A run uses the packages of its worker's environment."""
    return {"directory": str(ROOMS)}
