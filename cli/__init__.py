"""The `varband` command. It only calls flows, tasks, storage and dashboards."""
