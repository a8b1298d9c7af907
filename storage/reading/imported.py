"""An imported study, seen like a run: which of its artifacts stand where a report's inputs would."""

from __future__ import annotations

from pathlib import Path

from storage.artifacts.manifest import Manifest
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.reading.recipes import file_of, published_files

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
    """pass@k artifacts that were made from imported groups: one for each set of problems."""
    found = []
    for ref in store.refs("passk"):
        manifest = store.manifest(ref)
        if any(store.path(r).exists() and store.manifest(r).recipe.stage == IMPORTS for r in manifest.input_refs):
            found.append(manifest)
    return found


def title(store: Store, passk: Manifest) -> str:
    """After the folder of the file that its first arm was read from."""
    path = file_of(store.manifest(passk.input_refs[0]).recipe)
    return f"published · {'/'.join(Path(path or '').parts[-3:-1]) or passk.fingerprint[:8]}"


def inputs_of_slice(store: Store, passk: Manifest) -> dict[str, list[str]]:
    """Argument of the report's stage → refs. Errors: UserError if the study's bands are not in the store."""
    found = {name: [str(ref) for ref in refs] for kind, name in SHARED.items() if (refs := store.refs(kind))}
    if "bands" not in found or "pool" not in found:
        raise UserError(f"{passk.ref}: the imported study it belongs to is not whole here; varband replay remakes it")
    found["passk"] = [str(passk.ref)]
    for kind, name in (("passk_contrasts", "contrasts"), ("solved_by", "solved_by")):
        found[name] = [str(ref) for ref in store.refs(kind) if store.manifest(ref).input_refs == passk.input_refs]
    return {name: refs for name, refs in found.items() if refs}


def arms_of_slice(store: Store, passk: Manifest) -> list[str]:
    """In the order in which they were given."""
    return [str(store.manifest(ref).recipe.arguments.get("arm", ref)) for ref in passk.input_refs]


def is_slice(ref: Ref) -> bool:
    return ref.kind == "passk"


def imported_files(store: Store) -> dict[Ref, dict[str, str]]:
    """Every artifact → sha256 by path of the published files that it was made from, itself or through its inputs.

    An artifact whose manifest cannot be read, or an input of which is gone, is of no file.
    """
    found: dict[Ref, dict[str, str]] = {}

    def files(ref: Ref) -> dict[str, str]:
        if ref not in found:
            found[ref] = {}
            try:
                manifest = store.manifest(ref)
            except UserError:
                return {}
            found[ref] = published_files(manifest.recipe)
            for parent in manifest.input_refs:
                found[ref] = found[ref] | files(parent)
        return found[ref]

    return {ref: files(ref) for ref in store.refs()}
