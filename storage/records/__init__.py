"""Records beside the artifacts: runs, spending, drift notes, overrides."""
