"""Measures: the tables that a report reads, computed from rollouts. Each file has one table."""
