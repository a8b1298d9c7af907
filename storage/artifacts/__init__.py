"""Artifacts: their schemas, refs and manifests, and the store, which writes each artifact whole or not at all."""

from storage.artifacts import schemas

__all__ = ["schemas"]
