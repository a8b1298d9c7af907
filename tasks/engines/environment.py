"""Disable telemetry, hub access, progress bars and, in logs, warnings of third-party libraries; keep their caches in
the folder of the user.

What vLLM and Triton compile lies in one folder for everything that shapes a graph, small enough to carry:

    $VARBAND_CACHE/engines/<vLLM, torch, GPU>/{vllm,triton}

Within it vLLM tells models and settings apart. A machine that is lent bare starts sooner with the folder of another one
of its kind: `tar cJf engines.txz -C $VARBAND_CACHE engines` there, `tar xJf` here.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from importlib import metadata
from pathlib import Path

from storage.errors import Notice
from storage.roots import cache_home

SILENT = {
    "DO_NOT_TRACK": "1",
    "FLASHINFER_LOGGING_LEVEL": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_VERBOSITY": "error",  # each try to reach a hub is a line of warning
    # threads that spin while they wait starve each other as soon as anything else runs: 6 times slower, measured
    "OMP_WAIT_POLICY": "PASSIVE",
    # and a library that takes fewer threads on a busy machine sums in another order there
    "MKL_DYNAMIC": "FALSE",
    "OMP_DYNAMIC": "FALSE",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",  # they lie under /tmp, wherever the cache is
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TORCH_LOGS": "-torch._library.triton",  # that there is none on a CPU
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CONFIGURE_LOGGING": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}


def quiet_libraries(threads: int | None = None) -> None:
    """Set before the libraries are imported; what the user has set stays. threads: of each CPU-parallel region."""
    if threads is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    for name, value in SILENT.items():
        os.environ.setdefault(name, value)
    # torch unpickles what lies there, and its own choice is a name under /tmp, which any account may make first
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_home() / "torch"))
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\.")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    # peft's own pattern for a mixture's experts, which it then looks for among modules
    warnings.filterwarnings("ignore", message="The following (rank|alpha)_pattern keys", category=RuntimeWarning)
    if not sys.stderr.isatty():
        os.environ.setdefault("PYTHONWARNINGS", "ignore")  # for the engines' processes
        warnings.filterwarnings("ignore")
        warnings.filterwarnings("default", category=Notice)
        logging.getLogger().setLevel(logging.ERROR)


def keep_compiled(gpu: str) -> Path:
    """Point vLLM and Triton to their folder, before they are imported. What the user has set stays."""
    parts = (f"vllm-{metadata.version('vllm')}", f"torch-{metadata.version('torch')}", gpu)
    name = "-".join("".join(c if c.isalnum() or c in ".+-" else "_" for c in p) for p in parts)
    folder = cache_home() / "engines" / name
    os.environ.setdefault("VLLM_CACHE_ROOT", str(folder / "vllm"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    return folder


def settle_threads() -> None:
    """Once torch may be imported: an OpenMP that was loaded before us read the environment before we set it, and the
    number of threads decides the last bits of a sum."""
    import torch

    if wanted := os.environ.get("OMP_NUM_THREADS", "").split(",")[0]:
        torch.set_num_threads(int(wanted))
