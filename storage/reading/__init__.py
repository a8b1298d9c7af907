"""Reading: the catalog, named queries and what dashboards ask."""
