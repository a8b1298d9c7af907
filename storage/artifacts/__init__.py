"""Artifacts: kinds, refs, manifests, and the store, which writes them atomically."""

from storage.artifacts import kinds

__all__ = ["kinds"]
