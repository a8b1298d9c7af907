"""Artifacts: their schemas, refs, manifests, and the store, which writes them atomically."""

from storage.artifacts import schemas

__all__ = ["schemas"]
