"""Models by transformers, whole or not at all: what no file holds it makes up, and says so in passing."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from storage.errors import UserError
from tasks.engines.stored_weights import refuse_second_head

#: Threads of transformers' own read weights ahead of who converts them: on a CPU all of a model lies in memory twice.
_NO_THREADS = "HF_DEACTIVATE_ASYNC_LOAD"
_ORDERING = threading.Lock()
_LAYER = re.compile(r"\.\d+\.")
#: A layer, and that it has experts, whatever holds them.
_EXPERTS = re.compile(r"(.*?\.\d+)\..*\bexperts\.")


def loaded(kind: Any, folder: Path, dtype: Any, device: Any = None, **how: Any) -> Any:
    """kind: one of transformers' Auto classes. device: a GPU that weights are loaded onto one by one; null: a CPU.

    Errors: UserError for files that are not whole, for a second head, and for weights that none holds or that have
    another shape than config.json says.
    """
    refuse_second_head(folder)
    with _in_order(device), _own_code_refused(folder):
        model, about = kind.from_pretrained(
            folder,
            dtype=dtype,
            device_map=None if device is None else {"": device},
            use_safetensors=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **how,
        )
    if lacking := sorted(about["missing_keys"]):
        raise UserError(f"model folder {folder}: {len(lacking)} weights are in no file of it, first {lacking[0]}")
    if others := sorted(about["mismatched_keys"]):
        name, found, wanted = others[0]
        raise UserError(
            f"model folder {folder}: {len(others)} weights have other shapes than config.json says, first {name}:"
            f" {tuple(found)} and not {tuple(wanted)}"
        )
    return model


def tokenizer_of(folder: Path) -> Any:
    """Return the tokenizer of a model folder. Errors: UserError for one that needs code of the folder."""
    from transformers import AutoTokenizer

    with _own_code_refused(folder):
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


@contextmanager
def _own_code_refused(folder: Path) -> Iterator[None]:
    """Name the folder in transformers' refusal. Without `trust_remote_code=False` it would ask the person at a
    terminal, whose `y` runs the code."""
    try:
        yield
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise UserError(
            f"model folder {folder}: it needs code of its own (auto_map in its configs), which is never run; use a"
            " model of a type that transformers knows"
        ) from None


def refuse_holes(folder: Path) -> None:
    """For an engine that leaves a weight as it finds memory where no file holds it. Looked for are all, where they are
    stored under the names that transformers has for them; else those of a layer that other layers have, and experts of
    each layer.

    Errors: UserError if there are any.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    try:
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder, trust_remote_code=False))
    except ValueError:
        return  # of a kind that transformers does not know: the engine may
    stored, base = refuse_second_head(folder), f"{model.base_model_prefix}."
    there, known = {*stored, *(base + name for name in stored)}, model.state_dict().keys()
    as_loaded = not get_checkpoint_conversion_mapping(model.config.model_type) and all(
        name in known or base + name in known for name in stored
    )
    spelt = {_LAYER.sub(".", name) for name in stored}
    with_experts = {at[1] for name in there if (at := _EXPERTS.match(name))}

    def wanted(name: str) -> bool:
        of = _EXPERTS.match(name)
        of_a_layer_without = of is not None and bool(with_experts) and of[1] not in with_experts
        return as_loaded or _LAYER.sub(".", name) in spelt or of_a_layer_without

    lacking = [name for name, _ in model.named_parameters() if name not in there and wanted(name)]
    if lacking:
        raise UserError(f"model folder {folder}: {len(lacking)} weights are in no file of it, first {lacking[0]}")


def import_before_threads(model: Path) -> None:
    """Import the libraries that sampler, learner and encoder use, on the thread that calls.

    transformers imports a name when it is first used. Of two threads that do so at once, one finds a module that is
    only half there: `cannot import name 'AutoConfig' from 'transformers'`. A library or model that is not here is
    reported where it is used.
    """
    for name in ("peft", "sentence_transformers", "transformers.modeling_layers", "vllm.lora.request"):
        with suppress(ImportError):
            import_module(name)
    with suppress(ImportError):
        from vllm import LLM, SamplingParams  # noqa: F401
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer  # noqa: F401
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    with suppress(OSError, ValueError, KeyError):
        MODEL_FOR_CAUSAL_LM_MAPPING[type(AutoConfig.from_pretrained(model, trust_remote_code=False))]


@contextmanager
def _in_order(device: Any) -> Iterator[None]:
    """One load at a time: of two, the first to end would take away what the other is loading by."""
    if device is not None:
        yield
        return
    with _ORDERING:
        said = os.environ.get(_NO_THREADS)
        os.environ.setdefault(_NO_THREADS, "1")
        try:
            yield
        finally:
            if said is None:
                del os.environ[_NO_THREADS]
