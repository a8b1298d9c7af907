"""Claims: printed figures, each bound to a named query and to the imported files it is of, recomputed on a store."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from storage.artifacts.store import DATA, Store
from storage.errors import UserError
from storage.reading.catalog import artifacts
from storage.reading.recipes import imported_files
from storage.reading.views import Views, views
from storage.sql import QUERIES, named

#: The published study's figures, shipped beside the code.
CLAIMS = Path(__file__).resolve().parents[2] / "claims.toml"
Status = Literal["holds", "off", "unknown"]
NEEDS = re.compile(r"^-- needs: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A figure as printed. tolerance: how far the recomputed value may lie from it; a claim that bounds a value from
    above (`below`) holds when the value is smaller. file: the imported file that it is of. cannot: why it cannot be
    recomputed from anything published."""

    id: str
    text: str
    where: str
    printed: float
    query: str | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    tolerance: float = 0.0
    below: bool = False
    file: str | None = None
    cannot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """imported: sha256 by path of the files that the figures are of; empty where they are of whatever a store has."""

    claims: tuple[Claim, ...]
    imported: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    claim: Claim
    status: Status
    found: float | None = None
    reason: str = ""

    def row(self) -> dict[str, Any]:
        c = self.claim
        off = None if self.found is None else self.found - c.printed
        return {
            "id": c.id,
            "status": self.status,
            "text": c.text,
            "where": c.where,
            "printed": c.printed,
            "found": self.found,
            "off_by": off,
            "tolerance": c.tolerance,
            "reason": self.reason,
            "query": c.query,
            "parameters": dict(c.parameters),
        }


def read_claims(path: Path) -> Claims:
    """Errors: UserError naming the claim and field that is missing, unknown or double."""
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
        entries, imported = read["claim"], read.get("import", {})
    except OSError as error:
        raise UserError(f"claims file {path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"claims file {path}: not TOML ({error})") from None
    except KeyError:
        raise UserError(f"claims file {path}: has no [[claim]]") from None
    claims: list[Claim] = []
    for number, entry in enumerate(entries, 1):
        try:
            claims.append(_claim(entry, imported))
        except (TypeError, ValueError) as error:
            who = entry.get("id", f"number {number}") if isinstance(entry, dict) else f"number {number}"
            said = str(error).removeprefix("Claim.__init__() ")
            raise UserError(f"claims file {path}: claim {who}: {said}") from None
    double = next((c.id for i, c in enumerate(claims) if c.id in {d.id for d in claims[:i]}), None)
    if double:
        raise UserError(f"claims file {path}: two claims are called {double}")
    return Claims(claims=tuple(claims), imported=imported)


def _claim(entry: dict[str, Any], imported: Mapping[str, str]) -> Claim:
    given = dict(entry)
    if isinstance(text := given.get("printed"), str):
        given["printed"] = float(text) if _number(text) else text
        given.setdefault("tolerance", half_unit(text) if _number(text) else 0.0)
    claim = Claim(**given)
    if (claim.query is None) == (claim.cannot is None):
        raise ValueError("give either a query or the reason why it cannot be recomputed")
    if claim.query is not None and not (QUERIES / f"{claim.query}.sql").exists():
        raise ValueError(f"no query '{claim.query}' in storage/reading/queries")
    if not isinstance(claim.printed, int | float) or claim.tolerance < 0:
        raise ValueError(
            "printed is a number, or one in quotes with the digits of the print; the tolerance not negative"
        )
    if claim.file is not None and claim.file not in imported:
        raise ValueError(f"no sha256 of '{claim.file}' in [import]")
    return claim


def _number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False


def half_unit(printed: str) -> float:
    """Half a unit of the last digit that was printed: what rounding may leave.

    >>> [half_unit(text) for text in ("382", "0.90", "-16.5", "1e-8")]
    [0.5, 0.005, 0.05, 5e-09]
    """
    exponent = Decimal(printed).as_tuple().exponent
    return float(Decimal(5).scaleb(int(exponent) - 1))


def recomputed(store: Store, claims: Claims, *, threads: int = 1) -> list[Checked]:
    """Every claim on what the store has imported of the claims' files, and on what was made from these alone; on
    everything in it where the claims name no file."""
    files = imported_files(store)
    wanted = claims.imported.items()
    ours = [ref for ref, made_of in files.items() if not wanted or (made_of and made_of.items() <= wanted)]
    paths: dict[str, list[Path]] = {}
    for ref in ours:
        if store.has(ref):
            paths.setdefault(ref.kind, []).append(store.path(ref) / DATA)
    of = [(str(ref), path) for ref in ours for path in files[ref]]
    tables = {
        "artifacts": artifacts(store.root),
        "imports": pa.table(
            {"ref": pa.array([r for r, _ in of], pa.string()), "path": pa.array([p for _, p in of], pa.string())}
        ),
    }
    of_what = " of the claims' files" if wanted else ""
    with views(paths, tables, threads=threads) as asked:
        return [check(c, set(paths), lambda name, given: _value(asked, name, given), of_what) for c in claims.claims]


def checked_claims(root: Path) -> list[Checked]:
    """The published study's claims on the store under `root`, for who looks."""
    return recomputed(Store(root), read_claims(CLAIMS), threads=4)


def _value(asked: Views, name: str, parameters: Mapping[str, object]) -> float | None:
    table = asked.ask(name, dict(parameters))
    if table.num_rows != 1:
        return None
    value = table["value"][0].as_py()
    return None if value is None else float(value)


def check(
    claim: Claim, kinds: set[str], value: Callable[[str, Mapping[str, object]], float | None], of_what: str = ""
) -> Checked:
    """Recompute one claim. kinds: what the store has; value: the answer of a named query, null where there is none."""
    if claim.query is None:
        return Checked(claim=claim, status="unknown", reason=claim.cannot or "")
    missing = sorted(needs(claim.query) - kinds)
    if missing:
        return Checked(claim=claim, status="unknown", reason=f"the store has no {' and no '.join(missing)}{of_what}")
    given = dict(claim.parameters) | ({} if claim.file is None else {"file": claim.file})
    try:
        found = value(claim.query, given)
    except UserError as error:  # rows of an older schema
        return Checked(claim=claim, status="unknown", reason=str(error))
    if found is None:
        return Checked(claim=claim, status="unknown", reason="the store's rows do not answer the query")
    if claim.below:
        return Checked(claim=claim, status="holds" if found < claim.printed else "off", found=found)
    near = abs(found - claim.printed) <= claim.tolerance * (1 + 1e-9) + 1e-12
    return Checked(claim=claim, status="holds" if near else "off", found=found)


def needs(query: str) -> set[str]:
    """Kinds that a query reads, from its `-- needs:` line."""
    found = NEEDS.search(named(query))
    return {k.strip() for k in found[1].split(",")} if found else set()
