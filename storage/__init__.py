"""Storage: artifacts, ledger, records and queries; independent of how rows are made."""
