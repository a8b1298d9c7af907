"""Audit of a store: recompute claims, compare reports with the rows that they were made from, and check designs."""

from math import isclose
from pathlib import Path
from typing import Any

from flows.running.sessions import stages_on
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.reading.claims import CLAIMS, read_claims, recomputed
from storage.reading.query_cache import report_arguments
from storage.reading.views import helper_tables, inputs_of, views
from tasks.measures.audit import audit_designs

Row = dict[str, Any]
#: The inputs of a report that its audit reads.
DESIGN = ("pool", "splits", "screenings", "trainings", "final", "diversities")


def audit(store: Store, claims: Path = CLAIMS) -> Row:
    """Return claims, reports, findings and counts. Raise UserError if the store is empty or the claims unreadable."""
    wanted = read_claims(claims)
    if not store.refs():
        raise UserError(
            f"store {store.root}: no artifact to audit; run a study first, or `varband replay` for the published one"
        )
    checked = [one.row() for one in recomputed(store, wanted)]
    reports = [row for ref in store.refs("report") for row in _report(store, ref)]
    found = _findings(store)
    counts = {s: sum(r["status"] == s for r in [*checked, *reports]) for s in ("holds", "off", "unknown")}
    return {"claims": checked, "reports": reports, "findings": found, "counts": counts | {"findings": len(found)}}


def _report(store: Store, ref: Ref) -> list[Row]:
    """Return one row per figure in a report's summary: whether it still follows from the rows of the inputs."""
    recipe = store.manifest(ref).recipe
    about: Row = {"report": str(ref), "query": "report_summary"}
    if not store.has(ref):
        return [about | {"status": "unknown", "reason": "the report is damaged"}]
    try:
        arms = report_arguments(recipe).arms
        with views(inputs_of(store, recipe.inputs), helper_tables(recipe.inputs, arms)) as view:
            again = view.ask("report_summary").to_pylist()
    except UserError as error:
        return [about | {"status": "unknown", "reason": str(error)}]
    printed, rows = store.read(ref).to_pylist(), []
    if len(printed) != len(again):
        return [about | {"status": "off", "reason": f"{len(printed)} rows were printed, {len(again)} are found"}]
    for before, now in zip(printed, again, strict=True):
        for name, value in before.items():
            found = now.get(name)
            near = isinstance(value, float) and isinstance(found, float) and isclose(value, found, abs_tol=1e-9)
            status = "holds" if value == found or near else "off"
            one = {"arm": before["arm"], "figure": name, "printed": value, "found": found, "status": status}
            rows.append(about | one | {"reason": ""})
    return rows


def _findings(store: Store) -> list[Row]:
    """Return findings on the design of every report, computed again, and those in an imported study's audit."""
    found: list[Row] = []
    with stages_on(store):
        for ref in store.refs("report"):
            inputs = store.manifest(ref).recipe.inputs
            try:
                (pool,), (splits,), *several = (tuple(map(Ref.parse, inputs.get(name, ()))) for name in DESIGN)
                given: Row = {"pool": pool, "splits": splits, **dict(zip(DESIGN[2:], several, strict=True))}
                table = audit_designs.function(**given)
            except UserError as error:
                fact = {"code": "cannot_lint", "fact": f"{ref}: {error}", "place": str(ref)}
                found.append(fact | {"inference": "its design was not checked", "value": None, "query": None})
                continue
            found += [row | {"of": str(ref)} for row in table.to_pylist()]  # type: ignore[union-attr]
    for ref in store.refs("audit"):
        if store.manifest(ref).recipe.stage == "audit_published" and store.has(ref):
            found += [row | {"of": str(ref)} for row in store.read(ref).to_pylist()]
    return found
