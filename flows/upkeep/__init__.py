"""Checks between studies: nightly re-evaluation, audit of a store, the machine's health."""
