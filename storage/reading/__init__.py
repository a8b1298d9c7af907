"""Reading: the catalog, named queries, and data for dashboards."""
