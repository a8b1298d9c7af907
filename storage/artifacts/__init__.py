"""Artifacts: their schemas, refs, manifests, and the store, which writes them atomically."""

from storage.artifacts import report_inputs, schemas

__all__ = ["report_inputs", "schemas"]
