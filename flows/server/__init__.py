"""The Prefect server: startup, deployments, flows, automations and pages."""
