"""What runs, in what order, with which numbers."""
