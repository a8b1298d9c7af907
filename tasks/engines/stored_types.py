"""Types in which a model's weights are stored: numbers that a reader would take for what they are not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from storage.errors import UserError

FLOATS = ("F64", "F32", "F16", "BF16")
#: Of weights that are stored smaller than they are.
_SCALES = ("weight_scale", "_scale_inv", ".scales", "_proj_scales", ".qweight", ".qzeros")


def refuse_misread(folder: Path, types: Mapping[str, str], *, quantised: bool) -> None:
    """types: of each weight, by its name. quantised: config.json says how. transformers casts to floats what it is not
    told of, vLLM some of it. Errors: UserError for weights that are no floats, and for their scales."""
    if quantised:
        return
    said = (
        "and config.json has no quantization_config: these would be read as its numbers; take the model as it was"
        " published"
    )
    if scale := next((name for name in types if name.endswith(_SCALES)), None):
        raise UserError(f"model folder {folder}: {scale} is of weights that are quantised, {said}")
    weights = (name for name in types if name.endswith((".weight", "_proj")) and types[name] not in FLOATS)
    if odd := next(weights, None):
        raise UserError(f"model folder {folder}: {odd} is stored as {types[odd]}, no float of 16 bits or more, {said}")
