"""Records: files of a root that are not artifacts: runs, spending, nights, overrides of verdicts."""
