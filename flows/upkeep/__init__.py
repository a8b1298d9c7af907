"""Checks between studies: nightly re-evaluation, audit of a store, machine health."""
