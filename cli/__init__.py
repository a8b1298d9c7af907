"""The `varband` command. Its code only calls flows, tasks, storage and dashboards."""
