"""One page a file: each asks named queries and shows rows."""
