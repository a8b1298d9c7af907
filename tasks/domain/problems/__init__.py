"""Problems: sources, identity, checks of golds, near-duplicates, splits."""
