"""Measures: rollouts in, one table out; one file a table."""
