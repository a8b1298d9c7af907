"""Storage: artifacts, ledger, records and queries. This package does not know how rows are made."""
