"""Disable telemetry, hub access, progress bars and, in logs, warnings of third-party libraries."""

from __future__ import annotations

import logging
import os
import sys
import warnings

from storage.errors import Notice

SILENT = {
    "DO_NOT_TRACK": "1",
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
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\.")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    # peft's own pattern for a mixture's experts, which it then looks for among modules
    warnings.filterwarnings("ignore", message="The following (rank|alpha)_pattern keys", category=RuntimeWarning)
    if not sys.stderr.isatty():
        os.environ.setdefault("PYTHONWARNINGS", "ignore")  # for the engines' processes
        warnings.filterwarnings("ignore")
        warnings.filterwarnings("default", category=Notice)
        logging.getLogger().setLevel(logging.ERROR)


def settle_threads() -> None:
    """Once torch may be imported: an OpenMP that was loaded before us read the environment before we set it, and the
    number of threads decides the last bits of a sum."""
    import torch

    if wanted := os.environ.get("OMP_NUM_THREADS", "").split(",")[0]:
        torch.set_num_threads(int(wanted))
