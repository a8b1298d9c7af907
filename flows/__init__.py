"""Studies, the DAG that they run, and where it runs."""
