"""The app and the gallery: read-only views of a store, without analysis code."""
