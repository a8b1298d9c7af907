"""Claims and audit: what the design makes of the numbers, and whether printed figures still hold."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import streamlit as st

from dashboards.pages.parts import root, show, table
from dashboards.text import literal
from storage.reading.claims import CLAIMS, checked_claims
from storage.reading.figures import FIGURES
from storage.reading.query_cache import Stamp, stamp

#: Findings that are shown unfolded.
SHOWN_AT_ONCE = 8


def page() -> None:
    show(FIGURES["audit"], write=_findings)
    st.subheader("Printed figures, recomputed", anchor="claims")
    if not CLAIMS.exists():
        st.info("No claims.toml beside this installation; `varband audit --claims FILE` checks one.")
        return
    rows, unknown = _claims(root(), stamp(root()))
    if rows:
        st.caption(
            f"{sum(row['status'] == 'holds' for row in rows)} of {len(rows)} hold; `varband audit` says the same."
        )
        table(pa.Table.from_pylist(rows))
    if unknown:
        st.caption(
            f"{unknown} figures of the published study cannot be recomputed from this store;"
            " `varband replay DIR` imports its files."
        )


def _findings(rows: pa.Table) -> None:
    """Sentences: a table would cut them off. Many are folded by code, so that what stands below is found."""
    found = sorted(rows.to_pylist(), key=lambda row: row["code"])
    for code, group in groupby(found, key=lambda row: row["code"]):
        some = list(group)
        many = len(found) > SHOWN_AT_ONCE
        first = literal(some[0]["fact"][:100]) + (f" and {len(some) - 1} more" if len(some) > 1 else "")
        with st.expander(f"**{literal(code)}** {first}") if many else st.container(border=True):
            for row in some:
                st.markdown(f":orange-badge[{literal(code)}] {literal(row['fact'])}")
                st.caption(f"{literal(row['inference'])}  \n{literal(row['place'])} · query `{row['query']}`")


@lru_cache(maxsize=4)
def _claims(where: Path, at: Stamp) -> tuple[list[dict[str, Any]], int]:
    """(checked claims, how many this store cannot answer); asked again only when the store has changed."""
    checked = checked_claims(where)
    known = [one for one in checked if one.status != "unknown"]
    rows = [
        {
            "status": c.status,
            "claim": c.claim.text,
            "printed": float(c.claim.printed),
            "found": c.found,
            "off_by": None if c.found is None else c.found - c.claim.printed,
            "where": c.claim.where,
            "query": c.claim.query,
        }
        for c in sorted(known, key=lambda c: c.status != "off")
    ]
    return rows, len(checked) - len(known)
