"""Checks from config.json, before anything is loaded or paid for: whether a model fits into memory, and whether the
engines support it. Also the estimates that `plan` prints and engines start with.

`Policy.try_longest` tests whether the longest pack fits, after the learner's model is loaded. The learner supports
plain attention and a plain head. Tested model types are listed here. For any model, the log-probs are compared with the
model's own after loading (learning/policy.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from storage.errors import UserError
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_config import ALL_LINEAR, ATTENTION, EXPERT_PROJECTIONS, LearnerConfig
from tasks.engines.hardware import Execution, Hardware, engine_name, merges_adapters
from tasks.engines.model_files import loaded_bytes, num_experts, read_config

GIB = 1 << 30
#: Memory that vLLM needs for a step and for its CUDA graphs (39 graphs took 0.61 GiB on an H200).
_WORKING = 3 * GIB // 2
#: Ranks of adapters for which vLLM can allocate slots.
_SLOT_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
#: Number of predicted tokens whose logits the learner has in memory at once.
LOGPROB_CHUNK = 2048
#: A number of rows that no pack has.
UNBOUNDED = 1 << 62


def execution_on(hardware: Hardware, config: dict[str, Any]) -> Execution:
    """Return how this hardware trains a base model with this config."""
    merges = hardware.device == "cuda" and merges_adapters(config, hardware)
    return Execution(
        device=hardware.device,
        token_budget=hardware.token_budget,
        longest=hardware.max_model_len,
        checkpointing=hardware.checkpointing,
        async_checkpoints=hardware.device == "cuda",
        processes=hardware.processes,
        merged=merges,
        stacked_adapters=merges and num_experts(config) > 0 and engine_name(hardware.engine) == "vllm",
        memory_share=hardware.learner_share,
        deterministic=hardware.determinism == "bits",
        service=hardware.served_model if hardware.engine == "tinker" else None,
    )


def size(config: dict[str, Any], name: str, *others: str) -> int:
    """Return a number from a decoder's config.json, under the first of these names that it has. Raise UserError if the
    config has none of the names, or if the number is not a positive whole number."""
    found = next((config[each] for each in (name, *others) if config.get(each) is not None), None)
    if not isinstance(found, int) or found < 1:
        value = f"no {name}" if found is None else f"{name} {found!r}"
        raise UserError(
            f"config.json of a model of type {config.get('model_type', 'unknown')!r} says {value}: the size of this"
            " model is unknown, so Varband cannot train it or serve it with an adapter; use a text-only decoder"
        )
    return found


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a decoder. inner: width of an MLP or an expert. head: width of an attention head. experts: 0 if
    dense."""

    layers: int
    hidden: int
    inner: int
    heads: int
    head: int
    kv_heads: int
    experts: int

    @classmethod
    def of(cls, config: dict[str, Any]) -> "Shape":
        """Read the shape from config.json. Raise UserError as `size` does."""
        heads, hidden = size(config, "num_attention_heads"), size(config, "hidden_size")
        experts = num_experts(config)
        inner = size(config, *(["moe_intermediate_size"] if experts else []), "intermediate_size")
        head, kv_heads = config.get("head_dim") or hidden // heads, config.get("num_key_value_heads") or heads
        return cls(size(config, "num_hidden_layers"), hidden, inner, heads, head, kv_heads, experts)

    @property
    def attention(self) -> int:
        return self.layers * 2 * self.hidden * self.head * (self.heads + self.kv_heads)

    @property
    def mlp(self) -> int:
        """Return the number of MLP weights; for a mixture, of one expert per layer."""
        return self.layers * 3 * self.hidden * self.inner


def lora_parameters(
    config: dict[str, Any], rank: int, targets: Sequence[str] = ALL_LINEAR, expert_rank: int | None = None
) -> int:
    """Return the number of LoRA parameters of the targeted layers, and of every expert. expert_rank: `rank` if None."""
    one = Shape.of(config)
    q, kv = one.heads * one.head + one.hidden, one.kv_heads * one.head + one.hidden
    sides = {"q_proj": q, "k_proj": kv, "v_proj": kv, "o_proj": q}
    mlp = (one.hidden + one.inner) * max(1, one.experts) * len({*targets} & {*EXPERT_PROJECTIONS})
    return (rank * sum(sides.get(t, 0) for t in targets) + (expert_rank or rank) * mlp) * one.layers


def slot_rank(lora_rank: int) -> int:
    """Return the rank of the smallest slot of vLLM for an adapter. Raise UserError if the rank is too large."""
    if lora_rank > _SLOT_RANKS[-1]:
        raise UserError(f"LoRA rank {lora_rank}: vLLM serves at most {_SLOT_RANKS[-1]}")
    return next(rank for rank in _SLOT_RANKS if rank >= lora_rank)


class SamplerBytes(NamedTuple):
    """Bytes of each GPU of a sampling engine.

    weights: the engine's part of the weights, unmerged adapters, and working memory. merging: a second copy of the
    weights. The base of a mixture is in pinned host memory instead, and `merging` is the experts of two layers in
    transfer and float32 copies of one. cache: the KV cache of one rollout of `max_model_len` tokens, which vLLM needs
    to start.
    """

    weights: float
    merging: int
    cache: int


def sampler_bytes(base: Path, hardware: Hardware, lora_rank: int) -> SamplerBytes:
    """Estimate the memory of a sampling engine. lora_rank: rank of served adapters; 0 without any."""
    config, width, parts = read_config(base), hardware.bytes_per_value, hardware.tensor_parallel
    one, merging, slots = Shape.of(config), 0, 0
    if lora_rank and merges_adapters(config, hardware):
        merging = width * (6 * one.experts * one.inner * one.hidden if one.experts else one.attention + one.mlp)
    elif lora_rank:
        slots = lora_parameters(config, slot_rank(lora_rank)) * width
    cache = hardware.max_model_len * one.layers * 2 * max(1, one.kv_heads // parts) * one.head * width
    return SamplerBytes(loaded_bytes(base, width) / parts + _WORKING + slots, merging, cache)


def _check(what: str, needed: float, free: float, fix: str) -> None:
    if needed > free:
        raise UserError(f"{what} needs about {_size(needed)}, but {_size(free)} are free; {fix}")


def _size(of: float) -> str:
    return f"{of / GIB:.1f} GiB" if of >= 0.1 * GIB else f"{of / 2**20:.1g} MiB"


def check_sampler_memory(base: Path, hardware: Hardware, lora_rank: int, total: int) -> int:
    """Return the bytes of each GPU for the engine itself: its share of `total`, without the memory for merging. Raise
    UserError if the share is too small."""
    needed, share = sampler_bytes(base, hardware, lora_rank), hardware.memory_fraction * total
    fix = "raise hardware.memory_fraction or tensor_parallel, lower max_model_len, or take a larger GPU"
    if needed.merging:
        fix = f"set hardware.adapters=unmerged, {fix}"
    _check(f"{base.name}: sampling on each GPU", sum(needed), share, fix)
    return int(share - needed.merging)


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """The memory plan of a training. bytes: peak memory of the device. kept_rows: packs with more rows recompute layers
    in place of keeping activations. largest: rows of the largest possible pack."""

    bytes: int
    kept_rows: int
    largest: int


def activation_bytes(config: dict[str, Any], targets: Sequence[str], bytes_per_value: int, *, recompute: bool) -> int:
    """Return the bytes per row of a pack that are kept for the backward pass, with the fused kernels of a GPU.

    Per layer these are 6 vectors of the hidden size, 2 of the queries, 4 of the keys and 2 of the MLP's inner size. In
    a mixture, each expert of a token has in place of the MLP 2 inner vectors with LoRA, or 3 and a hidden one without;
    the current layer has 4 of both more. With recomputation it is the share of one layer, and a hidden vector per
    layer.
    """
    one = Shape.of(config)
    mlp, passing = 2 * one.inner, 0
    if one.experts:
        each = size(config, "num_experts_per_tok")
        mlp = each * (2 * one.inner if {*targets} & {*EXPERT_PROJECTIONS} else 3 * one.inner + one.hidden)
        passing = each * 4 * (one.inner + one.hidden) * bytes_per_value
    layer = (6 * one.hidden + (2 * one.heads + 4 * one.kv_heads) * one.head + mlp) * bytes_per_value
    return passing + (layer + one.layers * one.hidden * bytes_per_value if recompute else layer * one.layers)


def plan_training(
    base: Path, learner: LearnerConfig, execution: Execution, bytes_per_value: int, free: int | None
) -> TrainingPlan:
    """Plan the memory of a training. free: free bytes of the device; if None, packs have `token_budget` tokens."""
    config, targets = read_config(base), learner.target_modules
    lora = lora_parameters(config, learner.lora_rank, targets, learner.expert_rank)
    # in addition to masters and moments: the float32 gradient, the working copies and their gradients
    fixed = loaded_bytes(base, bytes_per_value) + checkpoint_bytes(base, learner) + lora * (4 + 2 * bytes_per_value)
    if learner.kl_weight:
        fixed += lora * 2 * bytes_per_value  # the reference weights of the KL term, and the current ones meanwhile
    if execution.merged:  # weights are there twice, except a mixture's experts, whose base is in host memory
        one = Shape.of(config)
        fixed += (one.attention + (0 if one.experts else one.mlp)) * bytes_per_value
    fixed += LOGPROB_CHUNK * size(config, "vocab_size") * (8 + bytes_per_value)
    kept, recomputed = (activation_bytes(config, targets, bytes_per_value, recompute=r) for r in (False, True))
    largest, fitting = execution.token_budget, UNBOUNDED
    if free is not None:
        largest = max(largest, execution.longest)
        fitting = max(0, int((0.9 * free - fixed) // kept))
    rows = {"on": 0, "off": UNBOUNDED, "auto": fitting}[execution.checkpointing]
    packs = max(min(rows, largest) * kept, largest * recomputed if largest > rows else 0)
    return TrainingPlan(fixed + packs, rows, largest)


def check_training_memory(
    base: Path, learner: LearnerConfig, execution: Execution, bytes_per_value: int, free: int
) -> TrainingPlan:
    """Return the plan of a training. Raise UserError if the training does not fit into `free` bytes of the device."""
    plan = plan_training(base, learner, execution, bytes_per_value, free)
    fix = "lower token_budget, max_model_len or the sampler's memory share, or take a larger GPU"
    _check(f"{base.name}: training with packs of {plan.largest} tokens", plan.bytes, 0.95 * free, fix)
    return plan


def check_host_memory(base: Path, available: int, bytes_per_value: int, copies: int = 1, checkpoints: int = 0) -> None:
    """Raise UserError if host memory is too small for the copies of a mixture's base from which weights are merged.
    copies: one per sampling engine and per process of the learner. checkpoints: bytes of simultaneous checkpoints."""
    if num_experts(read_config(base)):
        needed = copies * loaded_bytes(base, bytes_per_value) + checkpoints
        what = f"{base.name}: merging a mixture's adapters from {copies} copies in host memory"
        fix = "set hardware.adapters=unmerged, or take a machine with more memory"
        _check(what, needed, 0.9 * available, fix)


def checkpoint_bytes(base: Path, learner: LearnerConfig) -> int:
    """Return the bytes of a checkpoint: weights and Adam's two moments, in float32. With a critic it is twice that."""
    lora = lora_parameters(read_config(base), learner.lora_rank, learner.target_modules, learner.expert_rank)
    return 12 * lora * (1 + ("agents" in ADVANTAGES[learner.advantage].needs))


#: Types of decoders whose log-probs agree with the learner's (tests/engines/learning/test_own_forward.py).
TRIED = (
    *("afmoe", "apertus", "arcee", "bitnet", "diffllama", "ernie4_5", "ernie4_5_moe", "exaone4", "flex_olmo", "gemma"),
    *("gemma3_text", "glm", "glm4", "glm4_moe", "helium", "hunyuan_v1_dense", "llama", "ministral", "mistral"),
    *("mixtral", "olmo", "olmo2", "olmo3", "olmoe", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss"),
    *("smollm3", "starcoder2"),
)
#: Mixtures whose layout of experts the learner supports.
TRAINED_EXPERTS = ("qwen3_moe",)


def check_trainable(base: Path, learner: LearnerConfig, *, gpu: bool, longest: int | None = None) -> None:
    """Raise UserError for an untested model type or rotary embedding, for sequences longer than a sliding window, and
    for experts that cannot be trained (with this rank). gpu: train in bfloat16, else in float32. longest: tokens of a
    prompt and its completion; None if unknown."""
    config = read_config(base)
    kind, name = str(config.get("model_type")), base.name
    if kind not in TRIED:
        raise UserError(
            f"{name}: the learner is not tested with models of type {kind!r} and might train another policy than the"
            f" sampled one; evaluate the model untrained, or use one of type {', '.join(TRIED)}"
        )
    lora_parameters(config, learner.lora_rank, learner.target_modules)
    if (turned := _rope(config)[0]) in ("dynamic", "longrope"):
        raise UserError(
            f"{name}: its rotary embedding ({turned}) depends on the longest rollout of a pack, so the learner would"
            " train another policy than the sampled one; evaluate the model untrained"
        )
    known = window(config)
    if known and (longest is None or longest > known):
        raise UserError(
            f"{name}: the model has a sliding window, so the learner can use it only up to {known} tokens; set"
            f" hardware.max_model_len to at most {known}, or evaluate the model untrained"
        )
    of_experts = {*learner.target_modules} & {*EXPERT_PROJECTIONS} if num_experts(config) else set[str]()
    if of_experts and (kind not in TRAINED_EXPERTS or len(of_experts & {"gate_proj", "up_proj"}) == 1):
        raise UserError(
            f"{name}: experts can be trained only in models of type {TRAINED_EXPERTS[0]}, and gate_proj and up_proj"
            f" only together; change training.target_modules, for example to {','.join(ATTENTION)}"
        )
    check_rank(learner.lora_rank, learner.expert_rank, num_experts(config) if of_experts else 0, 2 if gpu else 4)


def window(config: dict[str, Any]) -> int | None:
    """Return the smallest sliding window of a layer, in tokens; None if no layer has one.

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


def _rope(config: dict[str, Any]) -> tuple[str | None, float]:
    """Return (type of scaling of positions, factor). transformers has two names for this field."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    return rope.get("rope_type", rope.get("type")), rope.get("factor") or 1.0


def positions(base: Path) -> int | None:
    """Return the longest sequence that a model supports; None if config.json does not say. Only with linear scaling of
    positions, the number in config.json is the one before scaling."""
    config = read_config(base)
    scaled, factor = _rope(config)
    known = config.get("max_position_embeddings")
    return known and int(known * (factor if scaled == "linear" else 1))


def check_positions(base: Path, max_model_len: int) -> None:
    """Raise UserError if a prompt with its completion may be longer than the model's positions."""
    known = positions(base)
    if known and max_model_len > known:
        raise UserError(
            f"{base.name}: hardware.max_model_len is {max_model_len}, but the model has only {known} positions; lower"
            " max_model_len and max_tokens"
        )


def check_rank(rank: int, expert_rank: int | None, num_experts: int, bytes_per_value: int) -> None:
    """Raise UserError for an expert rank without experts, and for a rank whose rows are not a multiple of 16 bytes,
    which grouped products need. num_experts: number of experts with LoRA."""
    name, of_experts = ("lora_rank", rank) if expert_rank is None else ("expert_rank", expert_rank)
    if not num_experts and expert_rank is not None:
        raise UserError(f"learner: expert_rank is {expert_rank}, but the base model has no experts; remove expert_rank")
    if num_experts and of_experts * bytes_per_value % 16:
        raise UserError(
            f"learner: {name} is {of_experts}; LoRA of experts needs a multiple of {16 // bytes_per_value} here. Change"
            " it, or train only the attention (target_modules=q_proj,k_proj,v_proj,o_proj)"
        )


def check_parallel(model: Path, hardware: Hardware) -> None:
    """Raise UserError if the number of GPUs per engine does not divide the attention heads."""
    heads = read_config(model).get("num_attention_heads", 0)
    if heads % hardware.tensor_parallel:
        raise UserError(
            f"hardware.tensor_parallel is {hardware.tensor_parallel}, but {model.name} has {heads} attention heads; set"
            f" a divisor of {heads}"
        )
