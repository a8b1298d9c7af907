"""Partitions group one problem's rollouts into classes, by answer, by trace or by strategy. Pure functions."""
