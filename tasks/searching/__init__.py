"""Searches of many problems at once: their trees, requests to the engine, and results."""
