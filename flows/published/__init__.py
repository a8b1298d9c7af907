"""The published study recomputed from its files."""
