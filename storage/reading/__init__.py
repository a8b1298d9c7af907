"""Reading a store: the catalog, named queries, and data for dashboards."""
