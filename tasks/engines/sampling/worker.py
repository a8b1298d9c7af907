"""Extensions of vLLM's worker: log-probs that stay on the GPU, and adapters that are merged into the weights.

vLLM mixes the class into its worker (`worker_extension_cls`), and calls its methods by name (`collective_rpc`) in the
model's process. `abilities` returns which of the extensions this engine supports.

An engine keeps running requests in slots, which are reused. A request that was pre-empted comes back in another slot,
computes its prompt and its text so far again, and continues. So a request's log-probs are segments: each begins at the
first token sampled in a slot, and ends where the next segment begins.

A dense model has a second copy of its base weights on the device. The base weights of a mixture would not fit on the
GPU. They are in pinned host memory, and each layer is copied while the layer before it is merged.
"""

import inspect
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors.torch import load_file
from torch import Tensor

from tasks.engines.adapter_files import Products, read_served
from tasks.engines.learning.merging import fetched, host_copies, merge_into
from tasks.engines.model_files import weight_files

#: Arguments of the sampler's `sample` that are read here, and an argument of `apply_sampling_params` that is set here.
_READ, _SKIPPED = ("expanded_idx_mapping", "idx_mapping_np", "pos"), "skip_top_k_top_p"
#: Environment variable with the id of the process with which the engine's processes end.
_USER = "VARBAND_ENGINE_USER"
_STATE_PARTS = ("remove_request", "req_id_to_index", "prompt_len", "prefill_len", "max_seq_len")


class SamplingWorker:
    """A mix-in for vllm.v1.worker.*, which provides `model_runner`."""

    model_runner: Any

    def abilities(self) -> dict[str, bool]:
        """Return what this engine supports. keep: it has the model runner V2 on a GPU, whose sampler knows slot and
        position. merge: all linear layers and experts are whole on this device, and not quantised."""
        return {"keep": _keeps(self.model_runner), "merge": mergeable(self.model_runner.get_model())}

    def keep_logprobs(self, on: bool) -> None:
        runner = self.model_runner
        if on:
            self._kept = _install(runner)
        else:
            del runner.sampler.sample, runner.req_states.remove_request

    def take_logprobs(self, lengths: dict[str, int]) -> bytes:
        """Return log-probs as the bytes of one float32 vector."""
        states = self.model_runner.req_states
        running = {r: _slot(states, i) for r in lengths if (i := states.req_id_to_index.get(r)) is not None}
        return self._kept.take(lengths, running).cpu().numpy().tobytes()

    def forget_logprobs(self) -> None:
        self._kept.forget()

    def hold_base(self, folder: str) -> None:
        """Keep the weights that adapters will be merged into. folder: of the base model."""
        self._base = base_weights(self.model_runner.get_model(), Path(folder))

    def serve_adapter(self, folder: str | None) -> None:
        """Use base + adapter in all later forward passes. With None, restore the base bit for bit."""
        serve(self.model_runner.get_model(), self._base, folder)


@contextmanager
def ending_with_this_process() -> Iterator[None]:
    """Make vLLM's processes that start in this block end with this process, so that none occupies a GPU for ever."""
    os.environ[_USER] = str(os.getpid())
    try:
        yield
    finally:
        del os.environ[_USER]


def _end_after(user: int) -> None:
    with suppress(psutil.NoSuchProcess):
        psutil.Process(user).wait()
    # the parent may be the engine core, which is a process in between
    if (starter := parent_process()) and starter.pid not in (None, user):
        with suppress(psutil.NoSuchProcess):
            psutil.Process(starter.pid).kill()
    os._exit(1)


def _keeps(runner: Any) -> bool:
    sampler, states = getattr(runner, "sampler", None), getattr(runner, "req_states", None)
    sample = getattr(sampler, "sample", None)
    if sample is None or states is None or getattr(runner, "rejection_sampler", None) is not None:
        return False
    known = hasattr(sampler, "sampling_states") and logits_arguments(sampler) is not None
    return known and all(hasattr(states, part) for part in _STATE_PARTS) and states.device.type == "cuda"


def logits_arguments(sampler: Any) -> list[str] | None:
    """Return the names of the arguments that `apply_sampling_params` takes from those of `sample`. The names differ
    between versions of vLLM. Return None if this version does not process the logits apart from sampling."""
    if not hasattr(sampler, "apply_sampling_params"):
        return None
    names = [name for name in inspect.signature(sampler.apply_sampling_params).parameters if name != "self"]
    given = {*inspect.signature(sampler.sample).parameters, _SKIPPED}
    if _SKIPPED not in names or not {*names} <= given or not {*_READ} <= given:
        return None
    return [name for name in names if name != _SKIPPED]


def _slot(states: Any, index: int) -> "Slot":
    prompt, prefill = int(states.prompt_len.np[index]), int(states.prefill_len.np[index])
    return Slot(index, prompt, prefill, int(states.max_seq_len[index]))


def _install(runner: Any) -> "KeptLogprobs":
    """Store log-probs when tokens are sampled, and save them when a slot becomes free."""
    from tasks.engines.kernels import sample_tokens

    sampler, states = runner.sampler, runner.req_states
    shape = (states.max_num_reqs + 1, states.max_model_len)
    kept = KeptLogprobs(torch.zeros(shape, dtype=torch.float32, device=states.device))
    sample, remove = sampler.sample, states.remove_request
    signature, names = inspect.signature(sample), logits_arguments(sampler) or []

    def sample_and_keep(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        given = signature.bind(*args, **kwargs).arguments
        slots_B, positions_B = given["expanded_idx_mapping"], given["pos"]
        settings, rows = sampler.sampling_states, given["idx_mapping_np"]
        if settings.any_greedy(rows) or any(x is not None for x in settings.get_top_k_top_p(slots_B, rows)):
            sampled, processed = sample(*args, **kwargs)
            logprobs_B = torch.log_softmax(processed.float(), -1).gather(-1, sampled[:, None])[:, 0]
            kept.table_SL[slots_B.long(), positions_B.long()] = logprobs_B
            return sampled, processed
        processed = sampler.apply_sampling_params(**{name: given[name] for name in names}, **{_SKIPPED: True})
        return sample_tokens(processed, slots_B, settings.seeds.gpu, positions_B, kept.table_SL), processed

    def remove_and_keep(request: str) -> int | None:
        if (index := states.req_id_to_index.get(request)) is not None:
            kept.release(request, _slot(states, index))
        return remove(request)

    sampler.sample, states.remove_request = sample_and_keep, remove_and_keep
    return kept


# vLLM imports this module in the model's process before it loads weights, so an engine that is starting ends too
if (_user := int(os.environ.get(_USER, 0))) not in (0, os.getpid()):
    threading.Thread(target=_end_after, args=(_user,), daemon=True).start()


@dataclass(frozen=True, slots=True)
class Slot:
    """The slot of a request. prompt: tokens of its prompt. prefill: tokens that are computed before it samples; after a
    pre-emption these are more than the prompt. end: the largest possible length of the sequence."""

    index: int
    prompt: int
    prefill: int
    end: int


@dataclass(slots=True)
class KeptLogprobs:
    """A float32 table [slot, position of the previous token], with one more row for masked writes of vLLM. Entries
    before `prefill`, which are written while a prompt is computed in chunks, are never read."""

    table_SL: Tensor
    segments: dict[str, list[tuple[int, Tensor]]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def release(self, request: str, slot: Slot) -> None:
        """Save the log-probs of a request before its slot is reused."""
        if request in self.taken:
            self.taken.discard(request)
            return
        row = self.table_SL[slot.index, slot.prefill - 1 : slot.end - 1]
        self.segments.setdefault(request, []).append((slot.prefill - slot.prompt, row.clone()))

    def take(self, lengths: dict[str, int], running: dict[str, Slot]) -> Tensor:
        """Return and forget the log-probs of whole rollouts, in one vector in the order of `lengths` (tokens of each).
        Raise KeyError if a request never ran. running: slots of requests that ended but were not released yet."""
        pieces: list[Tensor] = []
        for request, length in lengths.items():
            found = self.segments.pop(request, [])
            if slot := running.get(request):
                self.taken.add(request)
                row = self.table_SL[slot.index, slot.prefill - 1 : slot.end - 1]
                found = [*found, (slot.prefill - slot.prompt, row)]
            if not found:
                raise KeyError(f"no log-probs were kept of request {request}")
            starts = [start for start, _ in found[1:]] + [length]
            kept = [piece[: max(0, end - start)] for (start, piece), end in zip(found, starts, strict=True)]
            if sum(len(piece) for piece in kept) != length:
                raise RuntimeError(f"{length} tokens of request {request} and other log-probs were kept")
            pieces += kept
        return torch.cat(pieces) if pieces else self.table_SL.new_empty(0)

    def forget(self) -> None:
        """Drop the log-probs of aborted rollouts."""
        self.segments.clear()
        self.taken.clear()


# ---- the weights that vLLM samples with, and the base weights that adapters are merged into


Base = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """A parameter of the served model, with the names and row numbers of the matrices that are stacked in it."""

    module: Any
    attribute: str
    parts: tuple[str, ...]
    rows: tuple[int, ...]

    @property
    def weight(self) -> Tensor:
        return getattr(self.module, self.attribute)


def places(model: Any) -> dict[str, Place]:
    """Return the linear layers of the decoder, and the two expert weights of each mixture layer."""
    from vllm.model_executor.layers.linear import LinearBase

    stacked = getattr(model, "packed_modules_mapping", {})
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, LinearBase):
            parent, _, leaf = name.rpartition(".")
            parts = tuple(f"{parent}.{part}" for part in stacked.get(leaf, [leaf]))
            rows: Any = module.output_sizes if len(parts) > 1 else [module.output_size]
            found[name] = Place(module, "weight", parts, tuple(rows))
        elif _holds_experts(module):
            layer, inner = module.layer_name, module.w13_weight.shape[1] // 2
            both = (f"{layer}.gate_proj", f"{layer}.up_proj")
            found[f"{name}.w13"] = Place(module, "w13_weight", both, (inner, inner))
            found[f"{name}.w2"] = Place(module, "w2_weight", (f"{layer}.down_proj",), (module.w2_weight.shape[1],))
    return found


def mergeable(model: Any) -> bool:
    """Return whether all weights are plain: not quantised, not sharded, and not rearranged for a kernel."""
    found = places(model)
    return bool(found) and all(map(_plain, found.values()))


def _holds_experts(module: Any) -> bool:
    return hasattr(module, "w13_weight") and hasattr(module, "w2_weight")


def _plain(place: Place) -> bool:
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod

    method = place.module.quant_method
    if place.attribute == "weight":
        return getattr(place.module, "tp_size", 1) == 1 and type(method) is UnquantizedLinearMethod
    shared_out = place.module.moe_config.moe_parallel_config
    backend = getattr(method, "unquantized_backend", None)
    return shared_out.tp_size == 1 and not shared_out.use_ep and backend is not None and backend.name == "TRITON"


def base_weights(model: Any, folder: Path) -> Base:
    """Return copies of the weights. On a CPU vLLM repacks the weights, so they are read from their files again."""
    found = places(model)
    if all(place.weight.is_cuda for place in found.values()):
        weights = {name: place.weight.detach() for name, place in found.items()}
        if any(_holds_experts(place.module) for place in found.values()):
            return host_copies(weights)
        return {name: weight.clone() for name, weight in weights.items()}
    tensors = {name: tensor for file in weight_files(folder) for name, tensor in load_file(file).items()}
    return {
        name: torch.cat([tensors[f"{part}.weight"] for part in place.parts]).to(place.weight.dtype)
        for name, place in found.items()
    } | {f"{name}/packed": place.module.cpu_linear for name, place in found.items()}


def serve(model: Any, base: Base, folder: str | None) -> None:
    """Use base + adapter in all later forward passes. With None, restore the base bit for bit."""
    found = places(model)
    device = next(iter(found.values())).weight.device
    products = read_served(Path(folder), str(device)) if folder else Products({}, 0.0)
    if unknown := sorted(set(products.pairs) - {part for place in found.values() for part in place.parts}):
        raise ValueError(f"{folder}: adapts {unknown[0]}, which the served model does not have")
    if device.type == "cpu":
        _serve_on_cpu(found, base, products)
        return
    for name, weight in fetched(base, device):
        # in place, because CUDA graphs keep the address
        _merge(found[name].weight.data, weight, found[name], products)


def _merge(into: Tensor, weight: Tensor, place: Place, products: Products) -> None:
    outs, blocks = (tensor.split(place.rows, dim=-2) for tensor in (into, weight))
    for out, block, part in zip(outs, blocks, place.parts, strict=True):
        merge_into(out, block, products, part)


def _serve_on_cpu(found: Mapping[str, Place], base: Base, products: Products) -> None:
    for name, place in found.items():
        module = place.module
        if any(part in products.pairs for part in place.parts):
            _merge(new := base[name].clone(), base[name], place, products)
            module.weight = torch.nn.Parameter(new, requires_grad=False)
            module.quant_method.process_weights_after_loading(module)
        else:
            module.cpu_linear = base[f"{name}/packed"]
