"""Fields of stored recipes for display, and an imported study in the form of a report."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from storage.artifacts.fingerprint import restored
from storage.artifacts.manifest import Manifest, Recipe
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.records.garbage import closure

#: Former names of report inputs.
RENAMED_INPUTS = {"gains": "gain_differences"}


@dataclass(frozen=True, slots=True)
class ReportArguments:
    """Arguments of the report's stage. arms: in the order of their colours. title: title of a user's study. changes:
    differences from its base profile. settings: the whole study as TOML."""

    profile: str
    arms: tuple[str, ...]
    title: str = ""
    changes: tuple[str, ...] = ()
    settings: str = ""
    model: str = ""


def report_arguments(recipe: Recipe) -> ReportArguments:
    """Return a report's arguments. Errors: UserError for a report of another version of its stage."""
    return restored(ReportArguments, recipe.arguments)


def report_inputs(recipe: Recipe) -> dict[str, list[str]]:
    """Return the inputs of a report by their present names."""
    return {RENAMED_INPUTS.get(name, name): refs for name, refs in recipe.inputs.items()}


def file_of(recipe: Recipe) -> str | None:
    """Return the path of the published file that an artifact was imported from; None if it was not."""
    file = recipe.arguments.get("file")
    return file["path"] if isinstance(file, dict) else None


def published_files(recipe: Recipe) -> dict[str, str]:
    """Return the published files that a recipe names: sha256 by path."""
    found: dict[str, str] = {}
    for value in recipe.arguments.values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict) and one.get("is") == "PublishedFile":
                found[one["path"]] = one["sha256"]
    return found


# An imported study: its artifacts that take the place of a report's inputs.

IMPORTS = "import_groups"
#: Kinds that every slice of an imported study shares, and the report's names for them.
SHARED = {
    "pool": "pool",
    "splits": "splits",
    "bands": "bands",
    "band_crosstab": "crosstab",
    "curves": "curves",
    "diversity": "diversities",
    "diversity_comparison": "diversity",
    "audit": "audit",
}


def slices(store: Store) -> list[Manifest]:
    """Return the pass@k artifacts made from imported groups, one for each set of problems."""
    found = []
    for ref in store.refs("passk"):
        manifest = store.manifest(ref)
        if any(store.path(r).exists() and store.manifest(r).recipe.stage == IMPORTS for r in manifest.input_refs):
            found.append(manifest)
    return found


def title(store: Store, passk: Manifest) -> str:
    """Return a title from the folder of the first arm's file."""
    path = file_of(store.manifest(passk.input_refs[0]).recipe)
    return f"published · {'/'.join(Path(path or '').parts[-3:-1]) or passk.fingerprint[:8]}"


def inputs_of_slice(store: Store, passk: Manifest) -> dict[str, list[str]]:
    """Return argument of the report's stage → refs. Errors: UserError if the study's bands are not in the store."""
    found = {name: [str(ref) for ref in refs] for kind, name in SHARED.items() if (refs := store.refs(kind))}
    if "bands" not in found or "pool" not in found:
        raise UserError(
            f"{passk.ref}: artifacts of its imported study are missing here; `varband replay` makes them again"
        )
    found["passk"] = [str(passk.ref)]
    for kind, name in (("passk_contrasts", "contrasts"), ("solved_by", "solved_by")):
        found[name] = [str(ref) for ref in store.refs(kind) if store.manifest(ref).input_refs == passk.input_refs]
    return {name: refs for name, refs in found.items() if refs}


def arms_of_slice(store: Store, passk: Manifest) -> list[str]:
    """Return the arms of a slice, in the given order."""
    return [str(store.manifest(ref).recipe.arguments.get("arm", ref)) for ref in passk.input_refs]


def is_slice(ref: Ref) -> bool:
    return ref.kind == "passk"


def imported_files(store: Store) -> dict[Ref, set[tuple[str, str]]]:
    """Return every artifact with the published files (path, sha256) that it was made from, directly or indirectly."""
    known = dict[Ref, Manifest]()
    for ref in store.refs():
        with suppress(UserError):
            known[ref] = store.manifest(ref)
    own = {ref: published_files(manifest.recipe).items() for ref, manifest in known.items()}
    return {ref: set().union(*(own[one] for one in closure(known, [ref]))) for ref in known}
