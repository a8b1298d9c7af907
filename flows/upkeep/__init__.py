"""What is looked at between studies: nightly re-evaluation, audit of a store, the machine's health."""
