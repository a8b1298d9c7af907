"""Storage: artifacts, ledger, records and queries. It does not know how rows are made."""
