"""Problems: sources, identity, checks of golds (correct answers), near-duplicates, splits."""
