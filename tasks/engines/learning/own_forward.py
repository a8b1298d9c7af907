"""Whether the learner computes a model: by its type before anything is sampled, by measurement once it is loaded.

The learner computes plain attention and a plain head. Types that were tried are listed; of any model its log-probs of a
pack are compared with those of the model's own forward pass, so that another attention, mask, head or position shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from storage.errors import UserError
from tasks.domain.grpo.learner_config import ATTENTION, EXPERT_PROJECTIONS, LearnerConfig
from tasks.domain.grpo.packing import Pack, PromptGroup, Trajectory, build_pack
from tasks.engines.learning.attention import ATTENTION_NAME
from tasks.engines.learning.experts import check_rank
from tasks.engines.memory import lora_parameters, num_experts
from tasks.engines.model_files import read_config, stored_weights

if TYPE_CHECKING:
    from torch import Tensor

#: Types of decoders whose log-probs agree with the learner's (tests/engines/learning/test_own_forward.py).
TRIED = (
    *("afmoe", "apertus", "arcee", "bitnet", "diffllama", "ernie4_5", "ernie4_5_moe", "exaone4", "flex_olmo", "gemma"),
    *("gemma3_text", "glm", "glm4", "glm4_moe", "helium", "hunyuan_v1_dense", "llama", "ministral", "mistral"),
    *("mixtral", "olmo", "olmo2", "olmo3", "olmoe", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss"),
    *("smollm3", "starcoder2"),
)
#: Mixtures whose experts the learner knows: the others' lie in memory in ways of their own.
TRAINED_EXPERTS = ("qwen3_moe",)
#: Mean difference of log-probs at temperature 1 that says nothing, by bytes of a weight.
LEAST = {8: 1e-3, 4: 1e-3, 2: 1e-2}
#: Above it the learner may be this many times as far from the model as two attentions of the model's own are from each
#: other, which rounding alone keeps apart: 0.9 to 1.4 times in 500 models on a CPU, where scores of nine tenths make 3
#: and of a half 14. Fused kernels of a GPU round elsewhere, hence the room.
ROUNDED = 4
#: Tokens of two prompts, and of their completions.
_PROMPTS, _COMPLETIONS = (13, 5), (17, 8, 1)


def probe(vocabulary: int) -> list[PromptGroup]:
    """Groups of random tokens: completions of several lengths that share a prompt, and another prompt in the same pack.

    >>> [len(group.trajectories) for group in probe(640)]
    [3, 3]
    """
    rng = np.random.default_rng(0)
    completions = [rng.integers(0, vocabulary, size).tolist() for _ in _PROMPTS for size in _COMPLETIONS]
    trajectories = [Trajectory(i, ids, np.zeros(len(ids), np.float32), 0.0) for i, ids in enumerate(completions)]
    parts = np.array_split(np.arange(len(trajectories)), len(_PROMPTS))
    return [
        PromptGroup(rng.integers(0, vocabulary, size).tolist(), [trajectories[i] for i in part])
        for size, part in zip(_PROMPTS, parts, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class OwnForward:
    """Log-probs of a probe's tokens, end to end, as the model's authors have them. apart: the mean distance of another
    attention of theirs from it."""

    groups: Sequence[PromptGroup]
    logprobs: Tensor
    apart: float
    temperature: float


def own_forward(model: Any, temperature: float) -> OwnForward:
    """Each rollout by itself through the model, before anything of the learner is put into it."""
    groups = probe(model.get_input_embeddings().num_embeddings)
    model.set_attn_implementation("eager")
    plain = other = _logprobs(model, groups, temperature)
    with suppress(ValueError):  # a model that its authors wrote one attention for
        model.set_attn_implementation("sdpa")
        other = _logprobs(model, groups, temperature)
    model.set_attn_implementation(ATTENTION_NAME)
    return OwnForward(groups, plain, float((other - plain).abs().mean()), temperature)


def _logprobs(model: Any, groups: Sequence[PromptGroup], temperature: float) -> Tensor:
    import torch

    found = []
    with torch.no_grad():
        for group in groups:
            for one in group.trajectories:
                ids = torch.tensor([*group.prompt_ids, *one.token_ids], device=model.device)
                logits = model(input_ids=ids[None, :-1], use_cache=False).logits[0].float() / temperature
                first, targets = len(group.prompt_ids) - 1, ids[len(group.prompt_ids) :]
                found.append(logits[first:].log_softmax(-1).gather(1, targets[:, None])[:, 0])
    return torch.cat(found)


def refuse_otherwise(
    name: str, own: OwnForward, logprobs: Callable[[Pack], tuple[Tensor, Tensor]], itemsize: int
) -> None:
    """logprobs: the learner's, of a policy that no update has moved, whose weights are `itemsize` bytes each.

    Errors: UserError where the two are no one policy.
    """
    import torch

    # what is compiled for packs of a training would be for the few rows of this one
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        learned, _ = logprobs(build_pack(own.groups))
    apart = float((learned - own.logprobs).abs().mean())
    most = max(LEAST[itemsize] / min(1.0, own.temperature), ROUNDED * own.apart)
    if not apart <= most:
        raise UserError(
            f"{name}: the learner's log-probs are {apart:.3g} away from those of the model's own forward pass, where"
            f" rounding makes {most:.2g} at most: the model computes something that the learner does not, and what is"
            " trained would be another policy than the one that samples; evaluate it untrained, or take another"
        )


def check_trainable(base: Path, learner: LearnerConfig, *, gpu: bool, longest: int | None = None) -> None:
    """gpu: in bfloat16, else float32. longest: tokens of a prompt and its completion; None: not known.

    Errors: UserError for a type that was not tried, for sequences that are longer than what the learner computes alike,
    for layers to adapt that the model does not have, and for experts that are not trained, or not at this rank.
    """
    config = read_config(base)
    kind, name = str(config.get("model_type")), base.name
    if kind not in TRIED:
        raise UserError(
            f"{name}: the learner was not tried with models of type {kind!r}, and might train another policy than the"
            f" one that samples; evaluate it untrained, or take one of type {', '.join(TRIED)}"
        )
    lora_parameters(config, learner.lora_rank, learner.target_modules)
    known = min((limit for limit in (window(config), steady_positions(config)) if limit), default=None)
    if known and (longest is None or longest > known):
        raise UserError(
            f"{name}: the learner computes it up to {known} tokens alone, because of its sliding window or its rotary"
            f" embedding; set hardware.max_model_len={known} or less, or evaluate it untrained"
        )
    asked = {*learner.target_modules} & {*EXPERT_PROJECTIONS} if num_experts(config) else set[str]()
    stored = stored_weights(base)
    if missing := sorted(t for t in {*learner.target_modules} - asked if not any(f".{t}." in one for one in stored)):
        raise UserError(
            f"{name}: no layer of it is named {', '.join(missing)} (training.target_modules): name what it has, or"
            " evaluate it untrained"
        )
    if asked and kind not in TRAINED_EXPERTS:
        raise UserError(
            f"{name}: experts of a mixture of type {kind!r} are not trained, those of {TRAINED_EXPERTS[0]} are; train"
            f" the attention alone (training.target_modules={','.join(ATTENTION)})"
        )
    if len(asked & {"gate_proj", "up_proj"}) == 1:
        raise UserError(
            f"{name}: training.target_modules has one of gate_proj and up_proj, which are one weight of an expert: no"
            " sampler serves an adapter of a half; name both"
        )
    check_rank(learner.lora_rank, learner.expert_rank, num_experts(config) if asked else 0, 2 if gpu else 4)


def window(config: dict[str, Any]) -> int | None:
    """Return the tokens that a layer looks back on, of the layer that has fewest; None for all.

    >>> window({"sliding_window": 4096}), window({"sliding_window": 4096, "model_type": "qwen2"})
    (4096, None)
    >>> window({"sliding_window": 512, "layer_types": ["full_attention"] * 2})
    """
    qwen = str(config.get("model_type")).startswith("qwen")
    types = config.get("layer_types")
    first = config.get("max_window_layers", 0) if qwen and not types else 0
    used = config.get("use_sliding_window", not qwen) and first < config.get("num_hidden_layers", 1)
    width = config.get("sliding_window")
    return int(width) if used and width and (not types or "sliding_attention" in types) else None


def rope_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return how positions are turned, under either name that transformers gave it; empty for plainly."""
    given = config.get("rope_scaling") or config.get("rope_parameters")
    return given if isinstance(given, dict) else {}


def steady_positions(config: dict[str, Any]) -> int | None:
    """Return the tokens up to which a rollout's positions are turned alike whatever it is packed with; None for any
    number. Beyond, `dynamic` and `longrope` take their frequencies by the longest of a forward pass.

    >>> steady_positions({"max_position_embeddings": 64, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}})
    64
    """
    rope, original = rope_of(config), "original_max_position_embeddings"
    if rope.get("rope_type", rope.get("type")) not in ("dynamic", "longrope"):
        return None
    return rope.get(original) or config.get(original) or config.get("max_position_embeddings")


def positions(base: Path) -> int | None:
    """Return the longest sequence that a model reads; None if its config.json does not say.

    YaRN and its like write the stretched number there, linear scaling the one before it; dynamic scaling too, but vLLM
    has no more positions than stand there.
    """
    config = read_config(base)
    scaling = rope_of(config)
    stretched = scaling.get("rope_type", scaling.get("type")) == "linear"
    known = config.get("max_position_embeddings")
    return known and int(known * (scaling.get("factor") or 1 if stretched else 1))


def check_positions(base: Path, max_model_len: int) -> None:
    """Errors: UserError if prompt and completion may be longer than the model has positions."""
    known = positions(base)
    if known and max_model_len > known:
        raise UserError(
            f"{base.name}: hardware.max_model_len is {max_model_len} and the model has {known} positions; lower it, and"
            " max_tokens with it"
        )
