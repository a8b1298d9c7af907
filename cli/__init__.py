"""The `varband` command: thin shells around flows, tasks, storage and dashboards."""
