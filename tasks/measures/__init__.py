"""Measures turn rollouts into tables, one table per file."""
