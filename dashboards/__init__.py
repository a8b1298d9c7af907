"""Looks, never computes."""
