"""Stages, which make the artifacts. A file has one stage: first a pure function, and then the stage that calls it."""
