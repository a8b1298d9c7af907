"""Claims: printed figures, each bound to a named query and a tolerance, recomputed on a store."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from storage.errors import UserError
from storage.reading.views import Views
from storage.sql import QUERIES, named

#: The published study's figures, shipped beside the code.
CLAIMS = Path(__file__).resolve().parents[2] / "claims.toml"
Status = Literal["holds", "off", "unknown"]
NEEDS = re.compile(r"^-- needs: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A figure as printed. tolerance: how far the recomputed value may lie from it; a claim that bounds a value from
    above (`below`) holds when the value is smaller. cannot: why it cannot be recomputed from anything published."""

    id: str
    text: str
    where: str
    printed: float
    query: str | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    tolerance: float = 0.0
    below: bool = False
    cannot: str | None = None


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


def read_claims(path: Path) -> list[Claim]:
    """Errors: UserError naming the claim and field that is missing, unknown or double."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))["claim"]
    except OSError as error:
        raise UserError(f"claims file {path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"claims file {path}: not TOML ({error})") from None
    except KeyError:
        raise UserError(f"claims file {path}: has no [[claim]]") from None
    claims = []
    for number, entry in enumerate(entries, 1):
        try:
            claims.append(_claim(entry))
        except (TypeError, ValueError) as error:
            who = entry.get("id", f"number {number}") if isinstance(entry, dict) else f"number {number}"
            said = str(error).removeprefix("Claim.__init__() ")
            raise UserError(f"claims file {path}: claim {who}: {said}") from None
    double = next((c.id for i, c in enumerate(claims) if c.id in {d.id for d in claims[:i]}), None)
    if double:
        raise UserError(f"claims file {path}: two claims are called {double}")
    return claims


def _claim(entry: dict[str, Any]) -> Claim:
    claim = Claim(**entry)
    if (claim.query is None) == (claim.cannot is None):
        raise ValueError("give either a query or the reason why it cannot be recomputed")
    if claim.query is not None and not (QUERIES / f"{claim.query}.sql").exists():
        raise ValueError(f"no query '{claim.query}' in storage/reading/queries")
    if not isinstance(claim.printed, int | float) or claim.tolerance < 0:
        raise ValueError("printed is a number and the tolerance not negative")
    return claim


def recomputed(claims: Sequence[Claim], kinds: set[str], asked: Views) -> list[Checked]:
    """Every claim on the views of one store. kinds: what that store has."""
    return [check(claim, kinds, lambda name, given: _value(asked, name, given)) for claim in claims]


def _value(asked: Views, name: str, parameters: Mapping[str, object]) -> float | None:
    table = asked.ask(name, dict(parameters))
    if table.num_rows != 1:
        return None
    value = table["value"][0].as_py()
    return None if value is None else float(value)


def check(claim: Claim, kinds: set[str], value: Callable[[str, Mapping[str, object]], float | None]) -> Checked:
    """Recompute one claim. kinds: what the store has; value: the answer of a named query, null where there is none."""
    if claim.query is None:
        return Checked(claim=claim, status="unknown", reason=claim.cannot or "")
    missing = sorted(needs(claim.query) - kinds)
    if missing:
        return Checked(claim=claim, status="unknown", reason=f"the store has no {' and no '.join(missing)}")
    try:
        found = value(claim.query, claim.parameters)
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
