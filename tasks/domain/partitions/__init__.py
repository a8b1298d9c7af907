"""Partitions: which rollouts of one problem are the same, by answer, by trace or by strategy. Pure functions."""
