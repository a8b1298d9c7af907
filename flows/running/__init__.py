"""Runs of a study: plan, price, accounts, local processes, a pool of workers, Prefect."""
