"""Artifacts: kinds, refs, manifests, and the store that holds them whole or not at all."""

from storage.artifacts import kinds

__all__ = ["kinds"]
