"""Studies, their DAG of stages, and where this DAG runs."""
