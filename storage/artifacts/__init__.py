"""Artifacts: kinds, refs, manifests, and the store that holds them whole or not at all."""
