"""The engines of one process, created on first use and shared by its stages; and the paths of models and files.

The toolbox affects no fingerprint: recipes identify files by their hash, and the toolbox knows the folders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from storage.errors import UserError
from tasks.domain.grading.grading import ActiveGrader
from tasks.domain.policies import SERVED, KVCache
from tasks.engines.hardware import (
    Hardware,
    check_kv_cache,
    device_name,
    engine_name,
    quiet_libraries,
    release_memory,
    require_gpu,
)
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
    """Creates each engine once, and keeps only one sampling engine, which another model replaces.

    places: hash of a file or model → its path here. ranks: rank of the largest adapter that is served on a model, if
    known; used in place of the rank that a stage requests. first: the first rollouts since the sampling engine's
    weights changed (tasks/rollouts.py). grader: for rows from the ledger; `graders()` are without overrides.
    """

    hardware: Hardware = field(default_factory=Hardware)
    places: dict[str, Path] = field(default_factory=dict)
    grader: ActiveGrader = field(default_factory=ActiveGrader)
    ranks: Mapping[str, int] = field(default_factory=dict)
    first: object = None
    _open: dict[tuple[str, ...], object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        quiet_libraries(self.hardware.threads)

    def place(self, digest: str, what: str) -> Path:
        if digest.startswith(SERVED):
            raise UserError(
                f"{digest} is only on a server, which does not return token ids and log-probs; name a local model"
            )
        if digest not in self.places:
            raise UserError(
                f"{what} (sha256 {digest[:12]}…) is not on this machine; put it below VARBAND_MODELS, or name its"
                " folder in the study"
            )
        return self.places[digest]

    def generator(self, model_sha256: str, lora_rank: int, kv_cache: KVCache = "full") -> Generator:
        key = self._sampler_key(model_sha256, kv_cache)
        if key not in self._open:
            self.first = None
            for other in [other for other in self._open if other[0] == "generator"]:
                _close(self._open.pop(other))  # two engines would share one device's memory
        return self._once(key, lambda: self._sampler(model_sha256, lora_rank, kv_cache))

    def samples(self, model_sha256: str, kv_cache: KVCache = "full") -> bool:
        """Return whether this sampling engine is open."""
        return self._sampler_key(model_sha256, kv_cache) in self._open

    def _sampler_key(self, model_sha256: str, kv_cache: KVCache = "full") -> tuple[str, ...]:
        if model_sha256.startswith(SERVED):
            return "generator", "openai-text", model_sha256
        place, rounded = self.place(model_sha256, "the base model"), () if kv_cache == "full" else (kv_cache,)
        return "generator", engine_name(self.hardware.engine), str(place), *rounded

    def _sampler(self, model_sha256: str, lora_rank: int, kv_cache: KVCache) -> Generator:
        _, engine, place = self._sampler_key(model_sha256)
        if engine == "openai-text":
            from tasks.engines.sampling.openai import TextGenerator

            return TextGenerator(place.removeprefix(SERVED), self.hardware)
        check_kv_cache(kv_cache, engine, self.hardware.device)
        folder, lora_rank = Path(place), self.ranks.get(model_sha256, lora_rank)
        if engine == "openai":
            from tasks.engines.sampling.openai import OpenAIGenerator

            return OpenAIGenerator(folder, self.hardware)
        if engine == "tinker":
            from tasks.engines.sampling.tinker import TinkerGenerator

            return TinkerGenerator(folder, self.hardware)
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
        """Return whether sampler and learner compute in float32."""
        return not self.hardware.remote and device_name() == "cpu"

    @property
    def batch_size(self) -> int | None:
        """Return the number of rollouts that are sampled and stored together; None for a remote engine."""
        return None if self.hardware.remote else self.hardware.batch_size

    def embedder(self, name: str, weights_sha256: str, max_tokens: int) -> SentenceEncoder:
        from tasks.engines.encoding import SentenceEncoder

        place = partial(self.place, weights_sha256, f"the encoder {name}")
        key = ("embedder", name, weights_sha256)
        return self._once(key, lambda: SentenceEncoder(place(), name=name, max_tokens=max_tokens))

    def reader(self, model_sha256: str) -> TransformersGenerator:
        """Return the model in transformers, for the whole distributions of sampled tokens."""
        from tasks.engines.sampling.transformers import TransformersGenerator

        place = partial(self.place, model_sha256, "the base model")
        return self._once(("reader", model_sha256), lambda: TransformersGenerator(place(), self.hardware))

    def scorer(self, model_sha256: str, adapter: Path | None) -> Score:
        """Load a learner for scoring only. Raise UserError if the model cannot be loaded for scoring."""
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
        while self._open:
            _close(self._open.popitem()[1])


def _close(engine: object) -> None:
    if close := getattr(engine, "close", None):
        close()
