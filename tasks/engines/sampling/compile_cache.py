"""Where vLLM keeps what it compiled: one folder for everything that shapes a graph, and small enough to carry.

    $VARBAND_CACHE/engines/<vLLM, torch, GPU>/{vllm,triton}

Within it vLLM tells models and settings apart itself. A machine that is lent bare starts sooner with the folder of
another one of its kind: `tar cJf engines.txz -C $VARBAND_CACHE engines` there, `tar xJf` here.
"""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

from storage.roots import cache_home


def keep_compiled(gpu: str) -> Path:
    """Point vLLM and Triton to the folder, before they are imported. What the user has set stays."""
    parts = (f"vllm-{metadata.version('vllm')}", f"torch-{metadata.version('torch')}", gpu)
    folder = (
        cache_home() / "engines" / "-".join("".join(c if c.isalnum() or c in ".+-" else "_" for c in p) for p in parts)
    )
    os.environ.setdefault("VLLM_CACHE_ROOT", str(folder / "vllm"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    return folder
