"""Stages, which make the artifacts: one per file, a pure function first, then the stage that calls it."""
