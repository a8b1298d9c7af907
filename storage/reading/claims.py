"""Claims: published figures that are recomputed from a store. Each has a named query and the imported file it is in."""

import re
import tomllib
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from storage.artifacts.manifest import Manifest, Recipe
from storage.artifacts.ref import Ref
from storage.artifacts.store import DATA, Store
from storage.errors import UserError
from storage.reading.catalog import artifacts
from storage.reading.views import Views, views
from storage.records.garbage import closure
from storage.sql import QUERIES, named

#: The claims about the published study.
CLAIMS = Path(__file__).resolve().parents[2] / "claims.toml"
Status = Literal["holds", "off", "unknown"]
NEEDS = re.compile(r"^-- needs: (.+)$", re.MULTILINE)


class Claim(BaseModel):
    """A published figure: a number, or a number in quotes, whose digits set the tolerance. tolerance: largest accepted
    difference. below: the claim holds if the value is smaller. file: the imported file that has the figure. cannot: why
    the figure cannot be recomputed from published files."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    id: str
    text: str
    where: str
    printed: float = Field(allow_inf_nan=False)
    query: str | None = None
    parameters: dict[str, Any] = {}
    tolerance: float = Field(default=0.0, ge=0)
    below: bool = False
    file: str | None = None
    cannot: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_tolerance(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(text := given.get("printed"), str):
            with suppress(InvalidOperation, ValueError):
                return {"tolerance": half_unit(text)} | given
        return given

    @model_validator(mode="after")
    def _answerable(self) -> Self:
        if (self.query is None) == (self.cannot is None):
            raise ValueError("give either a query or the reason why it cannot be recomputed")
        if self.query is not None and not (QUERIES / f"{self.query}.sql").exists():
            raise ValueError(f"no query '{self.query}' in storage/reading/queries")
        return self


class Claims(BaseModel):
    """A file of claims. imported: sha256 of the published files by path; empty means all artifacts."""

    claims: tuple[Claim, ...] = Field(alias="claim")
    imported: dict[str, str] = Field(default={}, alias="import")

    @model_validator(mode="after")
    def _apart(self) -> Self:
        for place, one in enumerate(self.claims):
            if one.id in {other.id for other in self.claims[:place]}:
                raise ValueError(f"two claims are called {one.id}")
            if one.file is not None and one.file not in self.imported:
                raise ValueError(f"claim {one.id}: no sha256 of '{one.file}' in [import]")
        return self


@dataclass(frozen=True, slots=True)
class Checked:
    claim: Claim
    status: Status
    found: float | None = None
    reason: str = ""

    def row(self) -> dict[str, Any]:
        off = None if self.found is None else self.found - self.claim.printed
        fields = self.claim.model_dump(exclude={"below", "file", "cannot"})
        return fields | {"status": self.status, "found": self.found, "off_by": off, "reason": self.reason}


def read_claims(path: Path) -> Claims:
    """Read a claims file. Raise UserError with the claim and the field that are wrong."""
    try:
        return Claims.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"claims file {path}: cannot be read or is not TOML ({error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(f"claims file {path}: {where}: {first['msg']}".replace(": :", ":")) from None


def half_unit(printed: str) -> float:
    """Return half a unit of the last printed digit.

    >>> [half_unit(text) for text in ("382", "0.90", "-16.5", "1e-8")]
    [0.5, 0.005, 0.05, 5e-09]
    """
    exponent = Decimal(printed).as_tuple().exponent
    return float(Decimal(5).scaleb(int(exponent) - 1))


def recomputed(store: Store, claims: Claims) -> list[Checked]:
    """Check every claim on artifacts that were made only from the claims' files; without files, on all artifacts."""
    files = imported_files(store)
    wanted = claims.imported.items()
    ours = [ref for ref, made_of in files.items() if not wanted or (made_of and made_of <= wanted)]
    paths: dict[str, list[Path]] = {}
    for ref in ours:
        if store.has(ref):
            paths.setdefault(ref.kind, []).append(store.path(ref) / DATA)
    of = [{"ref": str(ref), "path": path} for ref in ours for path, _ in files[ref]]
    imports = pa.Table.from_pylist(of, schema=pa.schema({"ref": pa.string(), "path": pa.string()}))
    of_what = " of the claims' files" if wanted else ""
    with views(paths, {"artifacts": artifacts(store.root), "imports": imports}) as view:
        return [_checked(claim, paths.keys(), view, of_what) for claim in claims.claims]


def _checked(claim: Claim, kinds: Set[str], view: Views, of_what: str) -> Checked:
    if claim.query is None:
        return Checked(claim, "unknown", reason=claim.cannot or "")
    if missing := sorted(needs(claim.query) - kinds):
        return Checked(claim, "unknown", reason=f"the store has no {' and no '.join(missing)}{of_what}")
    try:
        given: dict[str, Any] = claim.parameters | ({} if claim.file is None else {"file": claim.file})
        values = view.ask(claim.query, given)["value"].to_pylist()
    except UserError as error:  # the rows have an older schema
        return Checked(claim, "unknown", reason=str(error))
    if len(values) != 1 or values[0] is None:
        return Checked(claim, "unknown", reason="the store's rows do not answer the query")
    found = float(values[0])
    near = abs(found - claim.printed) <= claim.tolerance * (1 + 1e-9) + 1e-12
    return Checked(claim, "holds" if (found < claim.printed if claim.below else near) else "off", found)


def needs(query: str) -> set[str]:
    """Return the kinds that a query reads, from its `-- needs:` line."""
    found = NEEDS.search(named(query))
    return {k.strip() for k in found[1].split(",")} if found else set()


def published_files(recipe: Recipe) -> dict[str, str]:
    """Return the published files that a recipe names, as sha256 by path."""
    values = [one for value in recipe.arguments.values() for one in (value if isinstance(value, list) else [value])]
    files = [one for one in values if isinstance(one, dict) and one.get("is") == "PublishedFile"]
    return {file["path"]: file["sha256"] for file in files}


def imported_files(store: Store) -> dict[Ref, set[tuple[str, str]]]:
    """Return every artifact with the published files (path, sha256) that it was made from, also through others."""
    known = dict[Ref, Manifest]()
    for ref in store.refs():
        with suppress(UserError):
            known[ref] = store.manifest(ref)
    own = {ref: published_files(manifest.recipe).items() for ref, manifest in known.items()}
    return {ref: set().union(*(own[one] for one in closure(known, [ref]))) for ref in known}
