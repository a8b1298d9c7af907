"""Claims and audit: what the design makes of the numbers, and whether printed figures still hold."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import streamlit as st

from dashboards.pages.parts import figure, root, table
from storage.errors import UserError
from storage.looks import Stamp, stamp, whole_store

CLAIMS = Path(__file__).resolve().parents[2] / "claims.toml"
WORDS = {True: "holds", False: "off"}


def page() -> None:
    figure("Findings about the design", "report_audit", ("audit",), empty="No finding: every design check passed.")
    st.subheader("Printed figures, recomputed", anchor="claims")
    if not CLAIMS.exists():
        st.info("No claims.toml beside this installation; `varband audit --claims FILE` checks one.")
        return
    rows, unknown = _claims(str(root()), stamp(root()))
    if rows:
        st.caption(
            f"{sum(row['status'] == 'holds' for row in rows)} of {len(rows)} hold; `varband audit` says the same."
        )
        table(pa.Table.from_pylist(rows))
    if unknown:
        st.caption(f"{unknown} figures of the published study cannot be recomputed from this store.")


@st.cache_data(max_entries=8)
def _claims(where: str, at: Stamp) -> tuple[list[dict[str, Any]], int]:
    """(checked claims, how many this store cannot answer); asked again only when the store has changed."""
    rows: list[dict[str, Any]] = []
    unknown = 0
    claims = tomllib.loads(CLAIMS.read_text())["claim"]
    with whole_store(Path(where)) as asked:
        for claim in claims:
            found = None
            if "query" in claim:
                try:
                    answer = asked.ask(claim["query"], claim.get("parameters", {}))
                    found = answer["value"][0].as_py() if answer.num_rows == 1 else None
                except UserError:  # the store has none of the kinds that it reads
                    found = None
            if found is None:
                unknown += 1
                continue
            off = float(found) - claim["printed"]
            near = off < 0 if claim.get("below") else abs(off) <= claim.get("tolerance", 0.0) + 1e-9
            rows.append({"status": WORDS[near], "claim": claim["text"], "printed": float(claim["printed"]),
                         "found": float(found), "off_by": off, "where": claim["where"],
                         "query": claim["query"]})  # fmt: skip
    return sorted(rows, key=lambda row: row["status"] != "off"), unknown
