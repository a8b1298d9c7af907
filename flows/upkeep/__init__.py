"""Checks between studies: nightly re-evaluation, audit of a store, and whether the machine is ready."""
