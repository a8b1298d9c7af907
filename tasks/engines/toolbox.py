"""The engines of one process, made on first use and shared by its stages; and where models and files lie.

Nothing here is part of a result's identity: recipes hold digests, the toolbox knows the folders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from storage.errors import UserError
from tasks.domain.grading.grading import ActiveGrader
from tasks.domain.policies import KVCache
from tasks.engines.environment import quiet_libraries
from tasks.engines.hardware import Hardware, check_kv_cache, device_name, engine_name, release_memory, require_gpu
from tasks.engines.loading import import_before_threads
from tasks.engines.protocols import Generator

T = TypeVar("T")

if TYPE_CHECKING:
    from tasks.engines.encoding import SentenceEncoder
    from tasks.engines.grading.graders import Graders
    from tasks.engines.rewarding import RewardModel
    from tasks.engines.sampling.same_policy import Score
    from tasks.engines.sampling.transformers import TransformersGenerator


@dataclass(slots=True)
class Toolbox:
    """Makes each engine once, and has one sampling engine at a time: another model takes the place of the one before.
    places: digest of a file or model → where it lies here. ranks: of the largest adapter that is
    served on a model, where that is known: then not what a stage asks for.

    first: what was sampled first since the last change of the sampling engine's weights (tasks/rollouts.py).
    grader: judges what is read from the ledger; `graders()` are the installed ones, without overrides.
    """

    hardware: Hardware = field(default_factory=Hardware)
    places: dict[str, Path] = field(default_factory=dict)
    grader: ActiveGrader = field(default_factory=ActiveGrader)
    ranks: Mapping[str, int] = field(default_factory=dict)
    first: object = None
    _open: dict[tuple[str, ...], object] = field(default_factory=dict)
    _begun: dict[tuple[str, ...], Future[Generator]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        quiet_libraries(self.hardware.threads)

    def place(self, digest: str, what: str) -> Path:
        if digest not in self.places:
            raise UserError(f"{what} (sha256 {digest[:12]}…) is not on this machine; say where it lies")
        return self.places[digest]

    def generator(self, model_sha256: str, lora_rank: int, kv_cache: KVCache = "full") -> Generator:
        """The sampling engine; waits for the one that was begun."""
        key = self._sampler_key(model_sha256, kv_cache)
        if key in self._begun:
            # a stop that comes meanwhile leaves it to `close`
            wait([self._begun[key]])
            self._open[key] = self._begun.pop(key).result()
            release_memory()
        if key not in self._open:
            self._close_samplers()
        return self._once(key, lambda: self._sampler(model_sha256, lora_rank, kv_cache))

    def _close_samplers(self) -> None:
        """Two would share one device's memory."""
        self._take_begun()
        self.first = None
        for key in [key for key in self._open if key[0] == "generator"]:
            _close(self._open.pop(key))

    def samples(self, model_sha256: str, kv_cache: KVCache = "full") -> bool:
        """Whether its sampling engine was asked for already."""
        return self._sampler_key(model_sha256, kv_cache) in self._open

    def begin_generator(self, model_sha256: str, lora_rank: int, kv_cache: KVCache = "full") -> None:
        """Start the sampling engine in a thread, for what is sampled soon; only one with processes of its own, which
        leaves this one its time. A model that is elsewhere is missed by whoever samples: the ledger may have it all."""
        # the learner's processes would see the sampler's GPUs if they were started meanwhile
        apart = self.hardware.sampler_apart and self.hardware.processes > 1
        if apart or self.hardware.engine_process == "inside" or model_sha256 not in self.places:
            return
        key = self._sampler_key(model_sha256, kv_cache)
        if key[1] != "vllm" or key in self._open or key in self._begun:
            return
        import_before_threads(self.places[model_sha256])
        thread = ThreadPoolExecutor(1)
        self._begun[key] = thread.submit(self._sampler, model_sha256, lora_rank, kv_cache)
        thread.shutdown(wait=False)

    def wait_for_begun(self) -> None:
        """Wait for an engine that is starting on the learner's GPU: vLLM takes memory that others use meanwhile for its
        own."""
        if not self.hardware.sampler_apart:
            wait(self._begun.values())

    def _sampler_key(self, model_sha256: str, kv_cache: KVCache = "full") -> tuple[str, ...]:
        place, rounded = self.place(model_sha256, "the base model"), () if kv_cache == "full" else (kv_cache,)
        return "generator", engine_name(self.hardware.engine), str(place), *rounded

    def _sampler(self, model_sha256: str, lora_rank: int, kv_cache: KVCache) -> Generator:
        _, engine, place = self._sampler_key(model_sha256)
        check_kv_cache(kv_cache, engine, self.hardware.device)
        folder, lora_rank = Path(place), self.ranks.get(model_sha256, lora_rank)
        if engine == "openai":
            from tasks.engines.sampling.openai import OpenAIGenerator

            return OpenAIGenerator(folder, self.hardware)
        if self.hardware.device == "cuda":
            require_gpu()
        release_memory()
        if engine == "vllm":
            from tasks.engines.sampling.replicas import ReplicatedGenerator
            from tasks.engines.sampling.vllm import VllmGenerator

            start = ReplicatedGenerator if self.hardware.replicas > 1 else VllmGenerator
            return start(folder, self.hardware, lora_rank, kv_cache)
        from tasks.engines.sampling.transformers import TransformersGenerator

        return TransformersGenerator(folder, self.hardware)

    @property
    def exact(self) -> bool:
        """Whether sampler and learner compute in float32."""
        return self.hardware.engine != "openai" and device_name() == "cpu"

    @property
    def batch_size(self) -> int | None:
        """Rollouts sampled and made durable together. A remote engine batches as it likes: what finishes is kept."""
        return None if self.hardware.engine == "openai" else self.hardware.batch_size

    def embedder(self, name: str, weights_sha256: str, max_tokens: int) -> SentenceEncoder:
        from tasks.engines.encoding import SentenceEncoder

        place = partial(self.place, weights_sha256, f"the encoder {name}")
        key = ("embedder", name, weights_sha256)
        return self._once(key, lambda: SentenceEncoder(place(), name=name, max_tokens=max_tokens))

    def reader(self, model_sha256: str) -> TransformersGenerator:
        """The model by transformers, to read what was sampled: other engines tell the log-prob of its tokens alone."""
        from tasks.engines.sampling.transformers import TransformersGenerator

        place = partial(self.place, model_sha256, "the base model")
        return self._once(("reader", model_sha256), lambda: TransformersGenerator(place(), self.hardware))

    def scorer(self, model_sha256: str, adapter: Path | None) -> Score:
        """Load a learner that is only to score. Errors: UserError where that cannot be."""
        from tasks.engines.learning.policy import scoring_policy

        return scoring_policy(self.place(model_sha256, "the base model"), adapter, self.hardware).score

    def reward_model(self, sha256: str) -> RewardModel:
        from tasks.engines.rewarding import RewardModel

        place = partial(self.place, sha256, "the reward model")
        return self._once(("reward_model", sha256), lambda: RewardModel(place(), self.hardware))

    def graders(self) -> Graders:
        from tasks.engines.grading.graders import Graders

        return self._once(("graders",), Graders)

    def _once(self, key: tuple[str, ...], make: Callable[[], T]) -> T:
        if key not in self._open:
            self._open[key] = make()
            release_memory()
        return self._open[key]  # type: ignore[return-value]

    def close(self) -> None:
        """An engine that is starting is waited for: stopped on its way it would leave processes behind."""
        self._take_begun()
        while self._open:
            _close(self._open.popitem()[1])

    def _take_begun(self) -> None:
        """Wait for the engines that are starting. The error of one is raised where that one is wanted."""
        for key, begun in list(self._begun.items()):
            if begun.exception() is None:
                self._open[key] = begun.result()
            del self._begun[key]  # after it was waited for: a stop that comes meanwhile leaves it to `close`


def _close(engine: object) -> None:
    if close := getattr(engine, "close", None):
        close()
