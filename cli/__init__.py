"""The `varband` command: thin wrappers of flows, tasks, storage and dashboards."""
