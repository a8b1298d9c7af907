"""What is remembered: bytes and columns, never how a row is made."""

import os
import sys

if sys.platform == "linux":
    # of what a million rows' parts have freed, Arrow's own choice keeps 50 MB more (docs/operations.md)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
