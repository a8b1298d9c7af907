"""The manifest beside every artifact: how it was asked for, what it was made from, where and when it was made."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from storage.artifacts.ref import Ref
from storage.errors import UserError

#: Raised when a reader of this version could misread an older manifest.
FORMAT = 1


class FileEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    path: str
    bytes: int
    sha256: str


class Recipe(BaseModel):
    """Identity: everything that changes the result and nothing else."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    stage: str
    version: int
    arguments: dict[str, object]
    inputs: dict[str, list[str]]  # argument -> refs, in order


class Provenance(BaseModel):
    """Recorded, never hashed into the fingerprint."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    created: str  # UTC, ISO 8601
    seconds: float
    code: str  # git commit, with +dirty
    python: str
    packages: dict[str, str]
    hardware: str
    command: str
    notes: dict[str, str] = {}  # what a stage says of its execution: engine, tokens/s, interruptions


class Manifest(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    format: int
    kind: str
    fingerprint: str
    token: str  # new at every making: an artifact is stale once an input was made again
    made_from: dict[str, str]  # input ref -> the input's token
    rows: int
    recipe: Recipe
    files: list[FileEntry]
    provenance: Provenance

    @property
    def ref(self) -> Ref:
        return Ref(self.kind, self.fingerprint)

    @property
    def input_refs(self) -> list[Ref]:
        return [Ref.parse(text) for refs in self.recipe.inputs.values() for text in refs]


def parse_manifest(text: str | bytes, where: str) -> Manifest:
    """Errors: UserError if the text is no manifest of this format."""
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "text"
        raise UserError(f"{where}: not a manifest that this version reads ({field}: {first['msg']})") from None
    if manifest.format != FORMAT:
        raise UserError(f"{where}: manifest format {manifest.format}, this version reads {FORMAT}; remake the artifact")
    return manifest
