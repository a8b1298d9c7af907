"""What a Prefect server knows of this project, and how it is set up."""
