"""Disable telemetry, hub access, progress bars and log warnings of third-party libraries, and keep their caches in the
user's folder.

Compiled kernels of vLLM and Triton are in one folder per vLLM, torch and GPU, small enough to copy:
    $VARBAND_CACHE/engines/<vLLM, torch, GPU>/{vllm,triton}
Within it vLLM separates models and settings. A new machine starts faster with the folder of a similar one: `tar cJf
engines.txz -C $VARBAND_CACHE engines` there, `tar xJf` here.
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
    "HF_HUB_VERBOSITY": "error",  # without hub access each try prints a warning
    # spinning threads slow each other down if other processes run: measured 6 times slower
    "OMP_WAIT_POLICY": "PASSIVE",
    # dynamic numbers of threads change the order of sums on a busy machine
    "MKL_DYNAMIC": "FALSE",
    "OMP_DYNAMIC": "FALSE",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",  # they would be in /tmp, not in the cache
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TORCH_LOGS": "-torch._library.triton",  # warns that a CPU has no Triton
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
    """Set environment variables before the libraries are imported; variables set by the user stay. threads: number of
    threads of each CPU-parallel region."""
    if threads is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    for name, value in SILENT.items():
        os.environ.setdefault(name, value)
    # torch unpickles files from this folder; its default is under /tmp, where any account could create it first
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_home() / "torch"))
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\.")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    # peft warns that no module matches its own pattern for a mixture's experts
    warnings.filterwarnings("ignore", message="The following (rank|alpha)_pattern keys", category=RuntimeWarning)
    if not sys.stderr.isatty():
        os.environ.setdefault("PYTHONWARNINGS", "ignore")  # for the engines' processes
        warnings.filterwarnings("ignore")
        warnings.filterwarnings("default", category=Notice)
        logging.getLogger().setLevel(logging.ERROR)


def keep_compiled(gpu: str) -> Path:
    """Set the cache folders of vLLM and Triton before they are imported; folders set by the user stay."""
    parts = (f"vllm-{metadata.version('vllm')}", f"torch-{metadata.version('torch')}", gpu)
    name = "-".join("".join(c if c.isalnum() or c in ".+-" else "_" for c in p) for p in parts)
    folder = cache_home() / "engines" / name
    os.environ.setdefault("VLLM_CACHE_ROOT", str(folder / "vllm"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    return folder


def settle_threads() -> None:
    """Set torch's number of threads from OMP_NUM_THREADS. An OpenMP library that was loaded earlier did not see this
    variable. The number of threads decides the last bits of sums."""
    import torch

    if wanted := os.environ.get("OMP_NUM_THREADS", "").split(",")[0]:
        torch.set_num_threads(int(wanted))
