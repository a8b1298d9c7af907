"""Concepts that several stages share: plain Python without IO, orchestrator or engine."""
