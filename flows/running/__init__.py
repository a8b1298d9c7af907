"""Runs of a study: plan, cost, accounting, local processes, and workers of a Prefect pool."""
