"""Problems, where they come from, and what may be wrong with them."""
