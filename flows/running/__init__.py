"""Runs of a study: their plan, cost and accounting, local processes, and workers of a Prefect pool."""
