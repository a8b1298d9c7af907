"""Records beside the artifacts: runs, spending, nights, overrides."""
