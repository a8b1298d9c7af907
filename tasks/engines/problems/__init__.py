"""Problems from files and from the hub."""
