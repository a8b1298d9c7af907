"""The Prefect server: its start, deployments, flows, automations and pages."""
