"""Load models with transformers, and refuse incomplete ones: transformers initialises missing weights at random and
names them in its loading report.

The report of a load onto the `meta` device also tells whether vLLM may load the folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from storage.errors import UserError
from tasks.engines.model_files import INDEX, read_config, stored_weights, weight_files

_OWN_CODE = (
    "it needs code of its own (auto_map in its configs), which is never run; use a model of a type that transformers"
    " knows"
)


def loaded(kind: Any, folder: Path, dtype: Any, device: Any = None, **how: Any) -> Any:
    """Load a model. kind: one of transformers' Auto classes. device: a GPU, loaded weight by weight, or `meta`, which
    reads nothing; None: the CPU. Errors: UserError for incomplete files, missing weights, and shapes that differ from
    config.json."""
    stored_weights(folder)
    if device is None:  # otherwise threads read ahead and have the whole model in memory twice
        os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")
    with _own_code_refused(folder):
        try:
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
        except RuntimeError as error:
            if "conversion of the weights" not in str(error):
                raise
            raise UserError(
                f"model folder {folder}: the number or size of its experts differs between layers or projections;"
                " download it again"
            ) from None
    if lacking := sorted(about["missing_keys"]):
        raise UserError(f"model folder {folder}: its files lack {len(lacking)} weights, first {lacking[0]}")
    if others := sorted(about["mismatched_keys"]):
        raise UserError(
            f"model folder {folder}: {len(others)} weights have other shapes than config.json says, first"
            f" {others[0][0]}"
        )
    return model


def tokenizer_of(folder: Path) -> Any:
    """Return the tokenizer of a model folder. Raise UserError if the tokenizer needs code from the model folder."""
    from transformers import AutoTokenizer

    with _own_code_refused(folder):
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


@contextmanager
def _own_code_refused(folder: Path) -> Iterator[None]:
    """Turn transformers' refusal of a model's own code into an error that names the folder. Without
    `trust_remote_code=False` transformers would ask at the terminal, and `y` would run the code."""
    try:
        yield
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise UserError(f"model folder {folder}: {_OWN_CODE}") from None


def refuse_holes(folder: Path) -> None:
    """Refuse models for vLLM that transformers would not load completely, because vLLM leaves missing weights unset.
    Quantised models and types unknown to transformers are not checked.

    Errors: see `loaded`; also UserError for a model that needs code from its folder, and for files that only vLLM would
    load: without an index it takes every .safetensors of a folder.
    """
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    strays = [] if (folder / INDEX).is_file() else sorted({*folder.glob("*.safetensors")} - {*weight_files(folder)})
    if strays:
        raise UserError(f"model folder {folder}: vLLM would load {strays[0].name} beside the weights: move it away")
    config = read_config(folder)
    known = config.get("model_type") in CONFIG_MAPPING
    if "auto_map" in config and not known:
        raise UserError(f"model folder {folder}: {_OWN_CODE}")
    if known and not config.get("quantization_config"):
        loaded(AutoModelForCausalLM, folder, torch.bfloat16, "meta")


def import_before_threads(model: Path) -> None:
    """Import the libraries of sampler, learner and encoder on the calling thread. transformers imports lazily, and two
    threads that do so at once can fail with `cannot import name 'AutoConfig' from 'transformers'`. A missing library or
    model is reported where it is used."""
    for name in ("peft", "sentence_transformers", "transformers.modeling_layers", "vllm.lora.request"):
        with suppress(ImportError):
            import_module(name)
    with suppress(ImportError):
        from vllm import LLM, SamplingParams  # noqa: F401
    import transformers
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    for name in ("AutoModelForCausalLM", "AutoModelForSequenceClassification", "AutoTokenizer"):
        getattr(transformers, name)
    with suppress(OSError, ValueError, KeyError):
        MODEL_FOR_CAUSAL_LM_MAPPING[type(AutoConfig.from_pretrained(model, trust_remote_code=False))]
