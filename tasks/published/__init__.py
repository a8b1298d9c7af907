"""Import of the published study: reading, describing and checking its files."""
